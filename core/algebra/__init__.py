"""The mathematics: units, symbols, formulas, the cost tree and the compiler. Floor: algebra, on top of errors only.

Nothing is imported here: units are needed by every command, sympy only by the first one that derives a formula.
"""
