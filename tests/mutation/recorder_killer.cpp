// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of the flight recorder, its files and deadlines on threads must fail: their unit
// tests. Its last line is the name of the first test that failed.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "mutation/unit_killer.hpp"
#include "unit/backend/threads_late_test.cpp"
#include "unit/comm/recorder_test.cpp"
