"""A node with H100 SXM of 80 GB on an NVSwitch; fabricheck.site.hgx says which variables name libraries and GPUs."""

from fabricheck.site.hgx import Hgx, hgx

site_configuration = hgx(
    Hgx(
        name="hgx-h100",
        descr="HGX H100",
        model="H100 80GB HBM3",
        arch="sm_90",
        # The profile keeps NCCL from NVLink multicast, which no one has tried on such a node here.
        tuning_profile="hgx-h200",
        unsupported={},
    )
)
