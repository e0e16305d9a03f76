# SPDX-License-Identifier: MIT
"""Image operations by Pillow and torchvision, for tests/data/augment_test.cpp and tests/data/imagenet_test.cpp.

Images are bytes, stored as float32 in NHWC without N; files are stored byte by byte.
"""

import io

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import v2
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms.functional import InterpolationMode, adjust_hue, resized_crop


NOISE = torch.Generator().manual_seed(0)


def picture(height: int, width: int) -> Image.Image:
    """Slopes, an edge and noise, of limited contrast, so that no operation is the identity."""
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    planes = np.stack([60 + 120 * x, 200 - 150 * y, 40 + 90 * (x + y > 0.8)], axis=2)
    noise = torch.randint(-25, 26, (height, width, 3), generator=NOISE).numpy()
    return Image.fromarray(np.clip(planes + noise, 0, 255).astype(np.uint8))


def resize_cases(out) -> None:
    for case, (height, width, box, size) in {
        "shrink": (40, 31, (0, 0, 40, 31), (9, 7)),
        "shrink_a_little": (20, 20, (0, 0, 20, 20), (17, 18)),
        "enlarge": (5, 6, (0, 0, 5, 6), (11, 13)),
        "shrink_and_enlarge": (30, 8, (0, 0, 30, 8), (10, 12)),
        "box": (25, 33, (4, 7, 18, 13), (8, 8)),
        "copy": (6, 5, (1, 0, 4, 5), (4, 5)),
        "one_pixel": (9, 9, (3, 8, 1, 1), (4, 3)),
        "to_one_pixel": (23, 17, (0, 0, 23, 17), (1, 1)),
    }.items():
        soft, (top, left, rows, columns) = picture(height, width), box
        sharp = soft.point(lambda v: 255 * (v > 127))  # beside whose edges a cubic leaves the range of a byte
        for group, image, mode in (("resize", soft, InterpolationMode.BILINEAR), ("bicubic", sharp, InterpolationMode.BICUBIC)):
            cropped = image.crop((left, top, left + columns, top + rows))
            # Newer versions of Pillow sometimes scale vertically first; here the order is always the classical one.
            way = getattr(Image, mode.name)
            y = cropped.resize((size[1], rows), way).resize((size[1], size[0]), way)
            at_once = resized_crop(image, *box, list(size), mode)
            out.add(f"{group}/{case}", dict(box=box, size=size), image=image, y=y, y_at_once=at_once)


def centre_crop_cases(out) -> None:
    for case, (height, width) in {"wide": (37, 50), "tall": (61, 40), "square": (33, 33), "small": (10, 12)}.items():
        image = picture(height, width)
        y = T.Compose([T.Resize(16), T.CenterCrop(14)])(image)
        out.add(f"centre_crop/{case}", dict(size=14), image=image, y=y)


def op_cases(out) -> None:
    """Each operation of RandAugment, at several magnitudes and in both directions."""
    small, large = picture(16, 13), picture(30, 24)  # equalising needs more than 255 pixels to do anything
    out.add("op_input/small", {}, image=small)
    out.add("op_input/large", {}, image=large)
    space = T.RandAugment()._augmentation_space(31, (small.height, small.width))
    for index, (op, (magnitudes, signed)) in enumerate(space.items()):
        image, size = (large, "large") if op == "Equalize" else (small, "small")
        for magnitude in (9, 17, 30) if magnitudes.ndim else (0,):
            strength = float(magnitudes[magnitude]) if magnitudes.ndim else 0.0
            for sign in (1, -1) if signed else (1,):
                y = _apply_op(image, op, sign * strength, InterpolationMode.NEAREST, None)
                name = f"{op}_{magnitude}{'_negative' if sign < 0 else ''}"
                assert op == "Identity" or (np.asarray(y) != np.asarray(image)).any(), f"{name} changes nothing"
                options = dict(op=index, magnitude=magnitude, negative=sign < 0, signed=signed, input=size)
                out.add(f"op/{name}", options, y=y)


def strength_cases(out) -> None:
    """The strengths of all operations at all magnitudes, in the ranges of RandAugment and of TrivialAugment."""
    height, width = 224, 160
    for name, space in {
        "usual": T.RandAugment()._augmentation_space(31, (height, width)),
        "wide": T.TrivialAugmentWide()._augmentation_space(31),
    }.items():
        rows = [magnitudes.float() if magnitudes.ndim else torch.zeros(31) for magnitudes, _ in space.values()]
        out.add(f"op_strength/{name}", dict(height=height, width=width), y=torch.stack(rows))


def wide_op_cases(out) -> None:
    """Operations of TrivialAugment at magnitudes that RandAugment has not, with a quarter turn among them."""
    image = picture(16, 16)
    out.add("wide_op_input/square", {}, image=image)
    space = T.TrivialAugmentWide()._augmentation_space(31)
    for index, (op, (magnitudes, signed)) in enumerate(space.items()):
        for magnitude in (8, 15, 20) if magnitudes.ndim else ():
            for sign in (1, -1) if signed else (1,):
                y = _apply_op(image, op, sign * float(magnitudes[magnitude]), InterpolationMode.NEAREST, None)
                options = dict(op=index, magnitude=magnitude, negative=sign < 0)
                out.add(f"wide_op/{op}_{magnitude}{'_negative' if sign < 0 else ''}", options, y=y)


def jitter_cases(out) -> None:
    image = picture(14, 11)
    out.add("jitter_input/picture", {}, image=image)
    for seed in range(8):
        jitter = T.ColorJitter(0.4, 0.8, 1.5, seed % 2 / 2)
        torch.manual_seed(seed)
        order, *factors, hue = T.ColorJitter.get_params(jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue)
        strengths = [*(factor - 1 for factor in factors), hue or 0]
        torch.manual_seed(seed)
        y = jitter(image)
        out.add(f"jitter/{seed}", dict(order=order.tolist(), strengths=[strengths[i] for i in order]), y=y)


def hue_cases(out) -> None:
    """Hues, grey and black among the colours, turned in both directions; each colour is a row of one image."""
    levels = [0, 1, 60, 127, 128, 200, 254, 255]
    image = Image.fromarray(np.array([[[r, g, b] for g in levels for b in levels] for r in levels], np.uint8))
    out.add("hue_input/colors", {}, image=image)
    for share in (0.0, 0.001, 0.2, -0.2, 0.5, -0.5):
        out.add(f"hue/{share}", dict(share=share), y=adjust_hue(image, share))


def decode_cases(out) -> None:
    image = picture(19, 22)
    deep_grey = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 256 + 99)
    transparent = image.copy()
    transparent.putalpha(100)
    for case, (source, kind, options) in {
        "jpeg_444": (image, "JPEG", dict(quality=90, subsampling=0)),
        "jpeg_420": (image, "JPEG", dict(quality=90, subsampling=2)),
        "jpeg_progressive": (image, "JPEG", dict(quality=90, progressive=True)),
        "jpeg_grey": (image.convert("L"), "JPEG", dict(quality=90)),
        "jpeg_cmyk": (image.convert("CMYK"), "JPEG", dict(quality=90)),
        "png_rgb": (image, "PNG", {}),
        "png_grey": (image.convert("L"), "PNG", {}),
        "png_grey16": (deep_grey, "PNG", {}),
        "png_palette": (image.quantize(7), "PNG", {}),
        "png_transparent": (transparent, "PNG", {}),
    }.items():
        file = io.BytesIO()
        source.save(file, kind, **options)
        expected = image.convert("L").convert("RGB") if case == "png_grey16" else Image.open(file).convert("RGB")
        out.add(f"decode/{case}", {}, file=np.frombuffer(file.getvalue(), np.uint8), y=expected)


def mix_cases(out) -> None:
    """A batch of two, where torchvision's pairing with the predecessor is our pairing in reverse order."""
    torch.manual_seed(0)
    images, labels = torch.randn(2, 3, 12, 10), torch.tensor([1, 3])
    for case, kind in {"mixup": v2.MixUp, "cutmix": v2.CutMix}.items():
        for i in range(4):
            transform = kind(alpha=1.0, num_classes=4)
            captured = {}
            make_params = transform.make_params
            transform.make_params = lambda inputs: captured.setdefault("params", make_params(inputs))
            y, shares = transform(images, labels)
            share = shares[0, 1].item()
            x1, y1, x2, y2 = captured["params"].get("box", (0, 0, 0, 0))
            options = dict(cut=case == "cutmix", box=[int(v) for v in (y1, x1, y2 - y1, x2 - x1)], share=share)
            out.add(f"mix/{case}_{i}", options, images=images.permute(0, 2, 3, 1), y=y.permute(0, 2, 3, 1))


GROUPS = [resize_cases, centre_crop_cases, op_cases, decode_cases, mix_cases, strength_cases, wide_op_cases, jitter_cases, hue_cases]
