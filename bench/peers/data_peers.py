#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ImageNet's training pipeline of bench/data_bench.cpp by other libraries, on one core: read, decode, random crop of 8 % to
100 % of the area to 224, flip, normalise to float32.

    ABTRAIN_IMAGENET_DIR=DIR venv/bin/python bench/peers/data_peers.py [NAME...]

Names those that are installed, and for each the images per second of processor time, of the second of two passes.
"""

import importlib
import os
import pathlib
import sys
import time

import numpy as np

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 224
random = np.random.default_rng(0)


def random_box(height, width):
    """torchvision's RandomResizedCrop.get_params."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1)
        ratio = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.integers(height - h + 1), random.integers(width - w + 1), h, w
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


def torchvision_pillow(files):
    import torch
    from PIL import Image
    from torchvision import transforms as T
    torch.set_num_threads(1)
    transform = T.Compose([T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])
    for file in files:
        transform(Image.open(file).convert("RGB"))


def torchvision_io(files):
    import torch
    from torchvision import io
    from torchvision.transforms import v2 as T
    torch.set_num_threads(1)
    transform = T.Compose([T.RandomResizedCrop(SIDE, antialias=True), T.RandomHorizontalFlip(),
                           T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)])
    for file in files:
        transform(io.decode_jpeg(io.read_file(file), mode=io.ImageReadMode.RGB))


def pillow(files):
    """Of pillow-simd too, which has the same name."""
    from PIL import Image
    scale = np.float32(1 / 255) / np.array(STD, np.float32)
    shift = -np.array(MEAN, np.float32) / np.array(STD, np.float32)
    for file in files:
        image = Image.open(file).convert("RGB")
        top, left, height, width = random_box(image.height, image.width)
        image = image.resize((SIDE, SIDE), Image.BILINEAR, (left, top, left + width, top + height))
        pixels = np.asarray(image)
        if random.random() < 0.5:
            pixels = pixels[:, ::-1]
        pixels * scale + shift


def simplejpeg(files):
    """Scaled by OpenCV's INTER_AREA, which averages as the others do."""
    import cv2
    import simplejpeg
    cv2.setNumThreads(1)
    scale = np.float32(1 / 255) / np.array(STD, np.float32)
    shift = -np.array(MEAN, np.float32) / np.array(STD, np.float32)
    for file in files:
        image = simplejpeg.decode_jpeg(pathlib.Path(file).read_bytes(), "RGB")
        top, left, height, width = random_box(*image.shape[:2])
        pixels = cv2.resize(image[top:top + height, left:left + width], (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        if random.random() < 0.5:
            pixels = cv2.flip(pixels, 1)
        pixels * scale + shift


def dali(files):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=16, num_threads=1, device_id=None, seed=1)
    def pipeline():
        jpegs, _ = fn.readers.file(files=files, labels=[0] * len(files), random_shuffle=False)
        images = fn.decoders.image_random_crop(jpegs, device="cpu", random_area=[0.08, 1.0],
                                               random_aspect_ratio=[3 / 4, 4 / 3])
        images = fn.resize(images, size=[SIDE, SIDE], interp_type=types.INTERP_TRIANGULAR)
        return fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), dtype=types.FLOAT,
                                        mean=[255 * m for m in MEAN], std=[255 * s for s in STD])

    pipe = dali.pipe = getattr(dali, "pipe", None) or pipeline()
    if not getattr(dali, "built", False):
        pipe.build()
        dali.built = True
    for _ in range(len(files) // 16):
        pipe.run()


def spdl(files):
    """Scales by FFmpeg's bilinear filter, in YUV, and has no random crop of its own: that is given as a filter to each file."""
    import spdl.io
    scale = np.float32(1 / 255) / np.array(STD, np.float32)
    shift = -np.array(MEAN, np.float32) / np.array(STD, np.float32)
    for file in files:
        packets = spdl.io.demux_image(file)
        top, left, height, width = random_box(packets.height, packets.width)
        frames = spdl.io.decode_packets(
            packets, filter_desc=f"crop={width}:{height}:{left}:{top}:exact=1,scale={SIDE}:{SIDE}:flags=bilinear"
            + (",hflip" if random.random() < 0.5 else "") + ",format=pix_fmts=rgb24")
        pixels = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        pixels * scale + shift


def tf_data(files):
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])

    def prepare(file):
        jpeg = tf.io.read_file(file)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(jpeg), whole, area_range=(0.08, 1.0), aspect_ratio_range=(3 / 4, 4 / 3))
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.image.decode_and_crop_jpeg(jpeg, window, channels=3, dct_method="INTEGER_ACCURATE")
        image = tf.image.resize(image, (SIDE, SIDE), antialias=True)
        return (tf.image.random_flip_left_right(image) / 255 - MEAN) / STD

    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    for _ in tf.data.Dataset.from_tensor_slices(files).map(prepare).batch(16).with_options(options):
        pass


CONTESTANTS = {"torchvision and Pillow": (torchvision_pillow, "torchvision"), "torchvision.io": (torchvision_io, "torchvision"),
               "Pillow": (pillow, "PIL"), "simplejpeg and OpenCV": (simplejpeg, "simplejpeg"), "DALI": (dali, "nvidia.dali"),
               "SPDL": (spdl, "spdl.io"), "tf.data": (tf_data, "tensorflow")}


def main():
    files = sorted(str(f) for f in pathlib.Path(os.environ["ABTRAIN_IMAGENET_DIR"], "train").glob("*/*"))
    for name, (run, module) in CONTESTANTS.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        try:
            version = getattr(importlib.import_module(module), "__version__", "")
        except ImportError:
            continue
        run(files)
        began = time.process_time()
        run(files)
        print(f"{name} {version}: {len(files) / (time.process_time() - began):.0f} images/s", flush=True)


if __name__ == "__main__":
    main()
