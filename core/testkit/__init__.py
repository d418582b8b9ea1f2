"""The conformance kit: one test class a plugin kind, for third parties and for slipstick's own plugins alike.

A plugin's test file subclasses the class of its kind, gives the object, and inherits the laws::

    from slipstick.core.testkit.strategy import StrategyContract

    class TestMine(StrategyContract):
        strategy = Mine()

Floor: above study; runs under pytest only (the extra ``test``). Nothing of slipstick imports it.
"""
