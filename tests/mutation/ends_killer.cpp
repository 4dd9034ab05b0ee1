// SPDX-License-Identifier: Apache-2.0
// What every mutant of a wait of the host for its streams must fail, in containers, schedules and a rank's streams:
// on streams that run as late as they may, memory is freed or used anew while they still use it. Built against
// headers in which one such wait is missing.
#include <cstdio>
#include <string>

#include "unit/streams/lifetimes.hpp"

int main() {
    static_assert(shardkit::checked);
    for (const lifetimes::Check& each : lifetimes::checks) {
        const std::string wrong = each.wrong();
        if (wrong.empty()) { continue; }
        std::printf("%s: %s\n", each.what, wrong.c_str());
        return 1;
    }
}
