"""Decoding of hostile images, documents and web pages: the program of a confined child.

`app/tools/decoder.py` starts it. It imports the libraries, gives everything else up, reads the
file from a descriptor, and prints a JSON object.
"""
