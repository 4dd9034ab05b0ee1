// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of what experts are made of must fail: their unit tests. Its last line is the name of
// the first test that failed.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "mutation/unit_killer.hpp"
#include "unit/expert_parallel/dispatch_test.cpp"
#include "unit/expert_parallel/experts_state_test.cpp"
#include "unit/expert_parallel/experts_test.cpp"
