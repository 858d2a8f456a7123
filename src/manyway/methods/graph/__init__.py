"""StatA, MOON, TransCLIP and ZLaP: methods on a graph of nearest queries.

They were made for embeddings of class names.
"""
