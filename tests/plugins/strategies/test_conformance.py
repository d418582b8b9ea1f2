"""Every bundled strategy keeps the laws of the conformance kit."""

from __future__ import annotations

from slipstick.core.testkit.strategy import StrategyContract
from slipstick.plugins.strategies.context import ContextParallel
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.expert import ExpertParallel
from slipstick.plugins.strategies.pipeline import PipelineParallel
from slipstick.plugins.strategies.tensor import TensorParallel


class TestDataParallel(StrategyContract):
    strategy = DataParallel()


class TestContextParallel(StrategyContract):
    strategy = ContextParallel()


class TestTensorParallel(StrategyContract):
    strategy = TensorParallel()


class TestPipelineParallel(StrategyContract):
    strategy = PipelineParallel()


class TestExpertParallel(StrategyContract):
    strategy = ExpertParallel()
