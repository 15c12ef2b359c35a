"""drasp: decompile a trained transformer into the short D-RASP program that it computes."""
