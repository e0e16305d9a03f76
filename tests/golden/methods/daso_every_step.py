# SPDX-License-Identifier: MIT
"""DASO with B = S = 1: what a step sends does not yet contain the merge of the step before."""

import daso

if __name__ == "__main__":
    daso.main("daso_every_step", 1, 1)
