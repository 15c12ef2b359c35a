"""Certificates: proofs that a program answers as a model does, by computing all inputs with error bounds.

What computes them needs NumPy alone, and is written beside each certificate as one file. What makes them from programs,
models and tasks is in `lowering.py`, `inputs.py` and `certificate.py`.
"""

from drasp.certificates.certificate import Certificate, certified, certify, check_certificate

__all__ = ["Certificate", "certified", "certify", "check_certificate"]
