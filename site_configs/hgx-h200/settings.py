"""A node with H200 on an NVSwitch; fabricheck.site.hgx says which variables name its libraries and its GPUs."""

from fabricheck.site.hgx import Hgx, hgx

site_configuration = hgx(
    Hgx(
        name="hgx-h200",
        descr="HGX H200",
        model="H200",
        arch="sm_90",
        tuning_profile="hgx-h200",
        # What the machine cannot do, and who says so.
        unsupported={"host_numa=remote": "one NUMA node, by `fabricheck capture` of 2026-11-21"},
    )
)
