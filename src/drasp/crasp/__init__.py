"""C-RASP, the language of counts in which length generalisation is understood, and the ways to and from D-RASP."""
