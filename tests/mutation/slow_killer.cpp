// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of what finds slow ranks must fail: its unit test. Its last line is the name of the
// first test that failed.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "mutation/unit_killer.hpp"
#include "unit/comm/stragglers_test.cpp"
