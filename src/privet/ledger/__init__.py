"""What has been spent on a data set, by whom and for what; charged before the release."""

from privet.ledger.charge_scope import Scope
from privet.ledger.curator_key import CuratorKey
from privet.ledger.fingerprint import fingerprint
from privet.ledger.hash_chain import Entry
from privet.ledger.ledger import Ledger, Verification
from privet.ledger.odometer_and_filter import Odometer
from privet.ledger.releases import LedgerRelease
from privet.ledger.sub_caps import SubCap

__all__ = [
    "CuratorKey",
    "Entry",
    "Ledger",
    "LedgerRelease",
    "Odometer",
    "Scope",
    "SubCap",
    "Verification",
    "fingerprint",
]
