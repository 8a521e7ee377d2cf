"""Is this file what you think it is?"""

from unsnap.doctor.blind import ALIGNMENT
from unsnap.doctor.examine import Report, diagnose, examine
from unsnap.doctor.mismatch import Finding

__all__ = ["ALIGNMENT", "Finding", "Report", "diagnose", "examine"]
