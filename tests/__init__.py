"""Tests. Importing this package first chooses the same arithmetic on every x86 processor.

Libraries choose kernels by processor, whose sums differ in the last bit; trainings and optimizers magnify that to the
second digit of some attacks. These are the kernels of AVX2, and a matrix product that is the same on Intel and AMD.
"""

import os

ARITHMETIC = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
for _name, _value in ARITHMETIC.items():
    os.environ.setdefault(_name, _value)
