from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.results.environment import is_recorded
from fabricheck.tuning import ACCEPTED, Profiles, libraries_of, load_profiles, removed, require_accepted

CONFIG = Path(__file__).resolve().parents[1] / "config" / "tuning.yaml"


def written(tmp_path: Path, text: str) -> Profiles:
    path = tmp_path / "tuning.yaml"
    path.write_text(text)
    return load_profiles(path)


def one(variable: str, value: str, **fields: str) -> str:
    setting = {"variable": variable, "value": f"'{value}'", "library": "ccl", "systems": "[x]", "effect": "y"}
    setting |= {"source": "z"} | fields
    return "profiles:\n  p:\n    description: d\n    settings:\n      - " + "\n        ".join(
        f"{name}: {each}" for name, each in setting.items()
    )


def test_every_setting_says_where_it_comes_from() -> None:
    for profile in load_profiles(CONFIG).profiles:
        for setting in profile.settings:
            assert setting.source
            assert setting.effect
            assert setting.systems


def test_whose_settings_a_transport_obeys() -> None:
    lumi = load_profiles(CONFIG).profile("lumi")
    assert lumi.environment(libraries_of("copy")) == {"HSA_ENABLE_SDMA": "0"}
    assert len(lumi.environment(libraries_of("ccl"))) == 3
    assert "MPICH_GPU_SUPPORT_ENABLED" in lumi.environment(libraries_of("mpi"))


def test_what_keeps_the_machine_safe_is_never_taken_away() -> None:
    """Alone or with the whole profile; that without which nothing runs goes alone."""
    lumi, hgx = (load_profiles(CONFIG).profile(name) for name in ("lumi", "hgx-h200"))
    (harms,) = hgx.settings
    for variable in ("", harms.variable):
        with pytest.raises(UserError):
            removed([hgx], variable)
    assert harms.variable not in removed([hgx, lumi], "")
    assert "MPICH_GPU_SUPPORT_ENABLED" not in removed([lumi], "")
    assert removed([lumi], "MPICH_GPU_SUPPORT_ENABLED") == {"MPICH_GPU_SUPPORT_ENABLED": None}


@pytest.mark.parametrize(
    ("variable", "value"), [("NCCL_IGNORE_CPU_AFFINITY", "yes"), ("NCCL_IB_SLL", "1"), ("MY_TOKEN", "x")]
)
def test_a_value_that_a_library_would_pass_over_is_not_tried(variable: str, value: str) -> None:
    require_accepted("NCCL_IB_SL", "3")
    with pytest.raises(UserError):
        require_accepted(variable, value)


def test_every_variable_is_recorded_so_that_a_run_shows_whether_it_was_set() -> None:
    assert [name for name in ACCEPTED if not is_recorded(name)] == []


def test_an_unknown_name_is_the_users_mistake() -> None:
    profiles = load_profiles(CONFIG)
    with pytest.raises(UserError, match=r"has no tuning profile 'lumii': choose from default, alps"):
        profiles.profile("lumii")


@pytest.mark.parametrize(
    ("variable", "good", "bad"),
    [
        ("NCCL_NET_GDR_LEVEL", ["LOC", "PHB", "SYS", "3"], ["phb", "NVL", "6", ""]),
        ("NCCL_NCHANNELS_PER_PEER", ["1", "32"], ["0", "-1", "1.5"]),
        ("NCCL_PROTO", ["LL", "LL,LL128", "^Simple"], ["simple", "LL,", "LL^"]),
        ("UCX_TLS", ["all", "self,sm,cuda_copy,cuda_ipc,cuda", "rc,rocm"], ["self,sm", "tcp", "cudart"]),
        ("OMPI_MCA_btl", ["self,vader", "^openib", "self"], ["vader,", "Vader", "self, sm"]),
    ],
)
def test_a_variable_accepts_what_its_library_accepts(
    tmp_path: Path, variable: str, good: list[str], bad: list[str]
) -> None:
    for value in good:
        assert written(tmp_path, one(variable, value)).profile("p").environment(["ccl"]) == {variable: value}
    for value in bad:
        with pytest.raises(UserError, match=r"tuning.yaml:\d+: profiles.p.settings\[0\].value"):
            written(tmp_path, one(variable, value))


def test_a_variable_that_is_not_known_says_itself_what_it_accepts(tmp_path: Path) -> None:
    profile = written(tmp_path, one("UCX_RNDV_THRESH", "8k", accepts="'auto|[0-9]+k?'", library="mpi")).profile("p")
    assert profile.environment(["mpi"]) == {"UCX_RNDV_THRESH": "8k"}


def test_every_accepted_pattern_refuses_something(tmp_path: Path) -> None:
    for variable in ACCEPTED:
        with pytest.raises(UserError):
            written(tmp_path, one(variable, ""))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (one("NCCL_DEBG", "INFO"), "NCCL_DEBG is unknown"),
        (
            one("UCX_IB_TRAFFIC_CLASS", "x", accepts="'y|z'"),
            "UCX_IB_TRAFFIC_CLASS does not accept 'x': it has to match y",
        ),
        (one("UCX_IB_TRAFFIC_CLASS", "x", accepts="'('"), r"settings\[0\].accepts: is not a regular expression"),
        (one("NCCL_PROTO", "LL", accepts="'.+'"), r"settings\[0\].accepts: the values of NCCL_PROTO are known"),
        (one("PATH", "x", accepts="'.+'"), "PATH is not recorded by fabricbench"),
        (one("nccl_proto", "LL"), r"settings\[0\].variable"),
        (one("NCCL_PROTO", "LL", library="nccl"), r"settings\[0\].library"),
        (one("NCCL_PROTO", "LL", systems="[]"), r"settings\[0\].systems"),
        (one("NCCL_PROTO", "LL", effect="''"), r"settings\[0\].effect"),
        (one("NCCL_PROTO", "LL", source="''"), r"settings\[0\].source"),
        (one("NCCL_PROTO", "LL", without="dies"), r"settings\[0\].without"),
        (one("NCCL_PROTO", "LL", colour="red"), r"settings\[0\].colour: is an unknown field"),
        (one("HSA_XNACK", "1").replace("'1'", "1"), r"settings\[0\].value"),
        (one("HSA_XNACK", "1").replace("'1'", "on"), r"settings\[0\].value"),
        (one("HSA_XNACK", "1").replace("        effect: y\n", ""), r"settings\[0\].effect: is missing"),
        (one("HSA_XNACK", "1").replace("  p:", "  P P:"), "P P"),
        (one("HSA_XNACK", "1") + "\n      -" + one("HSA_XNACK", "0").split("-", 1)[1], "HSA_XNACK is set twice"),
        (one("HSA_XNACK", "1") + "\n  p: {description: d, settings: []}", "is given twice"),
        ("[]", "tuning.yaml:1"),
        ("profiles: {p: {description: d}}", "settings: is missing"),
    ],
)
def test_a_bad_profile_is_the_users_mistake(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        written(tmp_path, text)
    assert str(error.value).splitlines() == [str(error.value)]
