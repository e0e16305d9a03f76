# SPDX-License-Identifier: MIT
"""The option --build of the scripts here."""

import argparse
import os


def add_option(options, *programs, default="build"):
    """A folder that has these programs; without them the script ends, and says so."""

    def folder(path):
        for program in programs:
            if not os.access(f"{path}/{program}", os.X_OK):
                raise argparse.ArgumentTypeError(f"no {path}/{program}: build it first, or name the folder of a build that has it")
        return path

    options.add_argument("--build", type=folder, default=default, help=f"folder of the build (default: {default})")
