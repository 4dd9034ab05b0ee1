// SPDX-License-Identifier: Apache-2.0
// saves [CASES] [FIRST SEED]: random states are saved and loaded again, see saves.hpp and run.
#include "saves.hpp"

#include "count_cases.hpp"

int main(int count, char** arguments) {
    return count_cases::run<3>(count, arguments, saves::run, {"no state", "refused", "loaded as they were saved"});
}
