"""Models whose program is known, and how far a decompiled program is that one."""
