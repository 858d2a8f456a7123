"""Methods on a graph of nearest queries, made for embeddings of class names:
StatA, MOON, TransCLIP, ZLaP.
"""
