"""The extensions of this package, a folder each; official_bert/extension.py says what an
extension is.
"""
