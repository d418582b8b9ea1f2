"""Every bundled catalog and the bundled kernel family keep the laws of the conformance kit."""

from __future__ import annotations

import pytest

from slipstick.core.model.interfaces.hardware import HardwareCatalog
from slipstick.core.testkit.hardware import HardwareCatalogContract
from slipstick.core.testkit.kernels import KernelFamilyContract
from slipstick.plugins.hardware import amd, aws, common, google, intel, nvidia
from slipstick.plugins.hardware.roofline import Roofline

CATALOGS: dict[str, HardwareCatalog] = {
    module.__name__.rsplit(".", 1)[1]: module.slipstick_hardware()[0]
    for module in (amd, aws, common, google, intel, nvidia)
}


class TestRoofline(KernelFamilyContract):
    family = Roofline()


def contract(name: str) -> type[HardwareCatalogContract]:
    """The contract of one bundled catalog; records refer to one another across catalogs."""
    others = tuple(catalog for other, catalog in CATALOGS.items() if other != name)
    return type(f"Test{name.capitalize()}", (HardwareCatalogContract,), {"catalog": CATALOGS[name], "others": others})


TestAmd, TestAws, TestCommon, TestGoogle, TestIntel, TestNvidia = map(contract, CATALOGS)


def test_every_catalog_is_tried() -> None:
    tried = {name.removeprefix("Test").casefold() for name in globals() if name.startswith("Test")}
    assert tried >= set(CATALOGS)


@pytest.mark.parametrize("name", list(CATALOGS))
def test_catalogs_are_named_after_their_plugin(name: str) -> None:
    assert CATALOGS[name].name
