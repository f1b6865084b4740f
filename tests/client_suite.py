"""The tests of the client side for systems other than Linux: `python tests/client_suite.py [arguments of pytest]`.

They need no broker and no more of the system than Windows has. `e2e/test_other_systems.py` runs them on Linux with the
rest of the system hidden, and the tests that need a broker in their own process, which has all of it.
"""

from __future__ import annotations

import sys

import pytest

ALONE = ["unit/sdk", "unit/tasks", "unit/cli"]
WITH_BROKER = [
    "unit/sdk/test_http_requests.py",
    "unit/tasks/test_prepared.py",
    "unit/tasks/test_task_testing.py",
    *(f"interop/test_{name}.py" for name in ("background_sdk", "batches", "http_worker", "local_broker")),
]
# Tests that need more, by the reason.
LEFT_OUT = {
    "a broker in this process": [
        *(each for each in WITH_BROKER if each.startswith("unit/")),
        "unit/sdk/test_futures.py::test_the_package_is_cheap_to_import_and_has_everything",
    ],
    "programs in place of functions (--exec)": ["unit/sdk/test_cancelled_jobs.py", "unit/sdk/test_program.py"],
    "fork": [
        "unit/sdk/test_forking_handlers.py",
        "unit/sdk/test_ids.py::test_a_forked_child_draws_its_own",
        "unit/sdk/test_request_numbers.py::test_a_forked_child_is_another_client",
    ],
    "SIGKILL, and pairs of Unix sockets: over TCP a kernel takes bytes for a dead process": [
        "unit/sdk/test_children.py"
    ],
    "Unix sockets": [
        "unit/sdk/test_address_list.py::test_each_host_and_each_url_is_an_address",
        "unit/sdk/test_address_list.py::test_every_address_has_its_own_proof",
        "unit/sdk/test_address_list.py::test_an_invalid_list_is_an_error_that_says_what_to_write",
        "unit/sdk/test_proof.py::test_token_by_argument_url_and_environment",
        "unit/sdk/test_proof.py::test_token_of_environment_is_not_sent_where_others_could_read_it_or_a_listener_would",
        "unit/sdk/test_worker_object.py::test_a_worker_offers_all_it_has_or_the_one_that_the_wire_has_room_for",
        "interop/test_local_broker.py::test_two_of_them_stand_side_by_side_and_speak_what_they_are_told",
        "interop/test_local_broker.py::test_it_can_be_closed_twice_and_leaves_nothing",
    ],
    "owners and modes of files": [
        "unit/sdk/test_proof.py::test_credential_of_systemd_may_have_its_mode",
        "unit/sdk/test_proof.py::test_setting_without_a_place_is_an_error_that_says_what_to_use",
        "unit/sdk/test_proof.py::test_file_that_others_may_read_is_refused_with_the_command",
        "interop/test_background_sdk.py::test_a_service_is_paused_and_goes_on",
    ],
    "ruff, or packages of the broker": [
        "unit/sdk/test_client_methods.py",
        "unit/cli/test_start.py::test_a_broker_does_not_load_rich",
    ],
    "the access folder of a broker": ["unit/cli/test_access_commands.py"],
    "a process that has not imported asyncio, which hiding does": [
        "unit/cli/test_start.py::test_the_command_line_loads_neither_asyncio_nor_broker_nor_client"
    ],
}


def arguments(*, with_broker: bool = False) -> list[str]:
    """Return the arguments of pytest, which runs in the folder of the project."""
    found = [f"tests/{each}" for each in (WITH_BROKER if with_broker else ALONE)]
    for tests in LEFT_OUT.values():
        for each in tests:
            if "::" in each:
                found.append(f"--deselect=tests/{each}")
            elif not (with_broker and each in WITH_BROKER):
                found.append(f"--ignore=tests/{each}")
    return [*found, "-q", "--timeout=60", "-p", "no:cacheprovider"]


if __name__ == "__main__":
    sys.exit(pytest.main([*arguments(), *sys.argv[1:]]))
