// SPDX-License-Identifier: Apache-2.0
// resumes [CASES] [FIRST SEED]: random trainings are resumed as others, see resumes.hpp and run.
#include "resumes.hpp"

#include "count_cases.hpp"

int main(int count, char** arguments) {
    return count_cases::run<2>(count, arguments, resumes::run, {"refused", "went on as they were saved"});
}
