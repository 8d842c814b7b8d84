"""Which test shows which security case: `tests/spec/security_cases.md`, a row for each id.

A test is named by file and function below `tests/`. What is missing of a row stands in `LATER`, with
what it waits for. `test_security_cases.py` holds the table against the spec and against the tests.
"""

from collections.abc import Mapping

_FILES = "tools/test_walls_of_files.py::"
_RACES = "tools/test_races.py::"
_WALLS = "sandbox/test_walls.py::"
_BWRAP = "sandbox/test_bubblewrap.py::"
_SELF = "sandbox/test_selftest.py::"
_BASH = "tools/test_bash.py::"
_BACK = "tools/test_bash_background.py::"
_RUNS = "e2e/test_walls_of_runs.py::"
_LEFT = "e2e/test_background_commands.py::"
_HTTP = "sandbox/test_guarded_http.py::"
_FETCH = "tools/test_web_fetch.py::"

SHOWN: Mapping[str, tuple[str, ...]] = {
    # -- A: paths and files -------------------------------------------------------------------
    "F01": (
        f"{_FILES}test_f01_a_way_up_is_refused_by_every_tool",
        f"{_FILES}test_f01_a_glob_pattern_that_goes_up_matches_nothing",
    ),
    "F02": (f"{_FILES}test_f02_absolute_paths_of_the_host_are_refused",),
    "F03": (f"{_FILES}test_f03_paths_of_the_agents_view_reach_what_bash_sees",),
    "F04": (f"{_FILES}test_f04_a_harmless_way_up_inside_works",),
    "F05": (f"{_FILES}test_f05_encoded_ways_up_are_plain_names",),
    "F06": (f"{_FILES}test_f06_text_that_names_no_file_is_refused",),
    "F07": (
        f"{_FILES}test_f07_a_link_that_leads_out_is_refused",
        f"{_FILES}test_f07_f08_images_documents_and_notebooks_outside_are_not_decoded",
    ),
    "F08": (f"{_FILES}test_f08_a_linked_folder_outside_is_not_followed",),
    "F09": (f"{_FILES}test_f09_links_inside_are_followed_for_reading",),
    "F10": (f"{_FILES}test_f10_a_linked_parent_is_no_way_to_write_outside",),
    "F11": (
        f"{_RACES}test_f11_a_swapped_link_never_shows_a_file_outside",
        f"{_RACES}test_f11_f12_a_swapped_link_never_takes_a_write_outside",
        f"{_RACES}test_f11_neither_way_of_opening_can_be_raced",
    ),
    "F12": (f"{_RACES}test_f11_f12_a_swapped_link_never_takes_a_write_outside",),
    "F13": (
        f"{_FILES}test_f13_process_files_are_refused",
        f"{_WALLS}test_command_lines_name_no_path_of_the_host",
        f"{_WALLS}test_another_session_cannot_be_reached",
    ),
    "F14": (f"{_FILES}test_f14_files_of_the_host_cannot_be_linked_hard",),
    "F15": (f"{_FILES}test_f15_a_fifo_is_refused_at_once",),
    "F16": (f"{_FILES}test_f16_devices_and_sockets_are_refused",),
    "F17": (f"{_FILES}test_f17_a_huge_file_takes_neither_memory_nor_time",),
    "F18": (
        f"{_FILES}test_f18_bytes_that_are_no_text_become_an_answer",
        f"{_RUNS}test_f18_sb22_bytes_that_no_text_holds_are_stored_and_streamed",
    ),
    "F19": (f"{_FILES}test_f19_odd_names_are_only_names",),
    "F20": (f"{_FILES}test_f20_deep_and_wide_trees_are_listed_within_limits",),
    "F21": (f"{_FILES}test_f21_a_regex_bomb_neither_hangs_nor_blocks",),
    # -- B: the sandbox of Bash -----------------------------------------------------------------
    "SB01": (
        f"{_WALLS}test_no_environment_of_the_service_is_visible",
        f"{_RUNS}test_sb01_sb02_sb03_sb05_a_run_finds_nothing_of_its_service",
    ),
    "SB02": (
        f"{_WALLS}test_command_lines_name_no_path_of_the_host",
        f"{_RUNS}test_sb01_sb02_sb03_sb05_a_run_finds_nothing_of_its_service",
    ),
    "SB03": (
        f"{_WALLS}test_another_session_cannot_be_reached",
        f"{_RUNS}test_sb01_sb02_sb03_sb05_a_run_finds_nothing_of_its_service",
    ),
    "SB04": (f"{_WALLS}test_files_of_the_service_do_not_exist",),
    "SB05": (
        f"{_WALLS}test_a_server_on_the_hosts_loopback_is_out_of_reach",
        f"{_WALLS}test_there_is_only_a_loopback_interface",
        f"{_WALLS}test_a_program_that_serves_has_no_other_network_than_a_command",
        f"{_RUNS}test_sb01_sb02_sb03_sb05_a_run_finds_nothing_of_its_service",
    ),
    "SB06": (f"{_WALLS}test_an_abstract_socket_of_the_host_is_out_of_reach",),
    "SB07": (f"{_WALLS}test_no_descriptor_is_inherited",),
    "SB08": (
        f"{_WALLS}test_namespaces_mounts_and_other_users_are_refused",
        f"{_WALLS}test_the_kernel_refuses_the_listed_calls",
    ),
    "SB09": (f"{_BWRAP}test_a_fork_bomb_stays_in_its_room",),
    "SB10": (
        f"{_WALLS}test_device_memory_and_large_files_are_bounded",
        f"{_WALLS}test_a_process_that_wants_ten_gigabytes_does_not_get_them",
    ),
    "SB11": (
        f"{_BWRAP}test_a_flood_is_cut_and_stopped_without_filling_our_memory",
        f"{_BASH}test_a_flood_is_an_error_that_names_the_bound",
        f"{_BASH}test_output_that_memory_does_not_hold_is_stored_whole",
    ),
    "SB13": (f"{_BWRAP}test_a_child_left_behind_neither_holds_the_call_nor_survives_it",),
    "SB14": (
        f"{_BWRAP}test_a_command_is_stopped_at_its_limit_with_all_it_started",
        f"{_BACK}test_at_its_limit_a_command_goes_on_in_the_background",
        f"{_BACK}test_a_task_is_stopped_with_all_it_started",
        f"{_BACK}test_the_life_of_a_background_command_is_bounded",
        f"{_RUNS}test_sb14_at_its_limit_it_goes_on_in_the_background_until_it_is_cancelled",
    ),
    "SB15": (f"{_RUNS}test_sb14_sb15_a_command_that_ignores_signals_ends_with_its_run",),
    "SB16": (
        f"{_BWRAP}test_a_killed_service_leaves_no_process_behind",
        "sandbox/test_strays.py::test_a_start_of_the_service_ends_strays",
        "e2e/test_replicas.py::test_what_a_killed_host_was_at_is_finished_by_another_one",
        f"{_LEFT}test_with_a_killed_host_its_commands_end_and_the_next_turn_says_so_elsewhere",
    ),
    "SB17": (f"{_BWRAP}test_threads_that_come_and_go_do_not_end_a_command",),
    "SB18": (f"{_BWRAP}test_orphans_leave_no_zombies",),
    "SB19": (
        f"{_BASH}test_a_command_may_be_long",
        f"{_BASH}test_a_command_that_no_shell_can_hold_is_refused",
        f"{_BWRAP}test_a_long_script_with_any_bytes_runs",
        f"{_BWRAP}test_a_nul_in_an_argument_is_refused",
    ),
    "SB20": (
        f"{_SELF}test_where_the_kernel_refuses_namespaces_the_remedy_is_named",
        f"{_SELF}test_a_missing_bubblewrap_is_named",
        f"{_SELF}test_a_sandbox_that_lacks_a_wall_is_found_out",
        "e2e/test_bad_starts.py::test_a_missing_bubblewrap_is_named_with_every_way_out",
        "e2e/test_bad_starts.py::test_a_host_without_walls_warns_and_says_so",
    ),
    "SB21": (f"{_BWRAP}test_when_bubblewrap_breaks_later_the_command_never_runs",),
    "SB22": (
        f"{_BASH}test_nul_escapes_and_bad_bytes_are_made_storable",
        f"{_RUNS}test_f18_sb22_bytes_that_no_text_holds_are_stored_and_streamed",
    ),
    "SB24": (
        f"{_BACK}test_a_flood_in_the_background_is_stopped_and_its_file_bounded",
        f"{_BACK}test_outputs_are_counted_in_a_quota_those_that_still_grow_whole",
        f"{_BACK}test_there_is_a_bound_on_the_number_of_stored_outputs",
    ),
    "SB26": (
        f"{_BASH}test_the_wish_to_leave_the_sandbox_has_no_effect",
        f"{_RUNS}test_sb26_the_wish_to_leave_the_sandbox_is_granted_in_no_mode",
    ),
    "SB27": (
        f"{_BASH}test_output_that_memory_does_not_hold_is_stored_whole",
        f"{_RUNS}test_sb27_output_that_was_stored_is_the_sessions_own",
        "tools/test_long_results.py::test_a_tool_of_ones_own_is_stored_past_50000_characters",
        "api/test_stored_outputs.py::test_what_the_agent_puts_in_its_place_leads_nowhere_else",
    ),
    # -- C: the network, as far as the service itself goes there --------------------------------
    "N04": (
        f"{_HTTP}test_an_address_in_a_url_is_refused_before_any_lookup",
        f"{_HTTP}test_what_rules_forbid_is_refused_before_any_lookup",
    ),
    "N05": (f"{_HTTP}test_a_list_of_hosts_matches_names_and_wildcards",),
    "N06": (f"{_HTTP}test_a_name_at_an_address_that_is_not_public_is_refused",),
    "N08": (
        f"{_HTTP}test_an_address_in_a_url_is_refused_before_any_lookup",
        f"{_FETCH}test_no_private_address_is_ever_fetched",
    ),
    "N09": (f"{_HTTP}test_the_checked_address_is_dialled_whatever_the_name_says_next",),
    "N10": (f"{_HTTP}test_a_name_at_an_address_that_is_not_public_is_refused",),
    "N11": (
        f"{_HTTP}test_redirects_on_one_host_are_followed_and_those_to_another_are_told",
        f"{_HTTP}test_a_client_that_follows_redirects_itself_is_guarded_at_each_hop",
        f"{_FETCH}test_redirects_on_the_host_are_followed_and_another_host_is_told",
    ),
    "N12": (f"{_HTTP}test_a_hostile_answer_costs_little_and_ends",),
    "N13": (
        f"{_FETCH}test_an_odd_page_costs_a_bounded_time_and_no_turn_of_others",
        f"{_FETCH}test_a_page_is_decoded_as_it_is_encoded",
        f"{_FETCH}test_a_page_without_a_body_is_said_to_be_empty",
    ),
    "N14": (f"{_HTTP}test_proxies_of_the_environment_are_ignored",),
    # -- approvals ------------------------------------------------------------------------------
    "M12": (
        "api/test_actions.py::test_an_answer_counts_once_and_another_one_is_refused_with_the_first",
        "api/test_actions.py::test_calls_behind_one_that_waits_are_made_once_each_and_none_is_lost",
        "api/test_actions.py::test_what_nobody_answers_in_time_is_denied_and_the_model_is_told",
        "e2e/test_actions.py::test_an_approval_given_ten_minutes_later_after_a_kill_runs_the_call_once_on_another_host",
    ),
}

LATER: Mapping[str, str] = {
    "F22": "snapshots of workspaces",
    "SB12": "quotas of workspaces",
    "SB23": "one loopback a session",
    "SB25": "quotas of tenants; a session's own bound is shown by "
    "test_there_is_a_bound_on_commands_in_the_background",
}
"""Rows of A and B that wait for isolation and tenants."""

PARTLY: Mapping[str, str] = {
    "SB20": "a second tenant in the mode without a sandbox",
}
"""What is missing of rows that are shown otherwise."""
