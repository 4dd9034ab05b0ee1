// SPDX-License-Identifier: Apache-2.0
// trainings [CASES] [FIRST SEED]: random trainings on random meshes beside one rank, see trainings.hpp and run.
#include "trainings.hpp"

#include "count_cases.hpp"

int main(int count, char** arguments) {
    return count_cases::run<2>(count, arguments, trainings::run, {"moved in memory", "moved in files"});
}
