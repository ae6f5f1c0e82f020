"""Special registers (PTX ISA 9.1, chapter 10) and what of ``px::`` they read."""

from __future__ import annotations

#: A register that is not here is unsupported.
SPECIAL_REGISTERS = {
    **{
        f"%{name}.{axis}": f"px::{name}({number})"
        for name in (
            "tid",
            "ntid",
            "ctaid",
            "nctaid",
            "clusterid",
            "nclusterid",
            "cluster_ctaid",
            "cluster_nctaid",
        )
        for number, axis in enumerate("xyz")
    },
    "%laneid": "px::laneid()",
    "%warpid": "px::warpid()",
    "%nwarpid": "px::nwarpid()",
    "%smid": "px::smid()",
    "%nsmid": "px::nsmid()",
    "%cluster_ctarank": "px::cluster_ctarank()",
    "%cluster_nctarank": "px::cluster_nctarank()",
    **{f"%envreg{number}": f"px::envreg({number})" for number in range(32)},
    "%lanemask_eq": "px::lanemask_eq()",
    "%lanemask_lt": "(px::lanemask_eq() - 1)",
    "%lanemask_le": "(2 * px::lanemask_eq() - 1)",
    "%lanemask_gt": "~(2 * px::lanemask_eq() - 1)",
    "%lanemask_ge": "~(px::lanemask_eq() - 1)",
    "%dynamic_smem_size": "px::dynamic_smem_size(kStaticShared)",
    "WARP_SZ": "32",
}
