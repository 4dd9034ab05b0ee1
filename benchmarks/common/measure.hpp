// SPDX-License-Identifier: Apache-2.0
// What the programs time and check with.
#pragma once

#include "../measure/in_turns.hpp"
#include "../measure/verb_workload.hpp"
