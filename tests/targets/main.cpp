// SPDX-License-Identifier: Apache-2.0
// The parts of the program, whose names PARTS lists as PARTS(f) f(plain) ..., make the same numbers: those of
// arithmetic one number at a time. An argument: how far they may be from it, in parts of the number. The part `fast`
// may be so far without it.
#include "part.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

std::vector<float> expected() {
    std::vector<float> made;
    for (std::size_t i = 0; i < count; ++i) {
        float parameter = start_of(i);
        float sum = 0;
        for (int step = 0; step < steps; ++step) {
            const float gradient = gradient_of(i, step);
            sum += gradient * gradient;
            parameter = parameter - gradient * 0.01F / (std::sqrt(sum) + 1e-8F);
        }
        made.push_back(parameter);
    }
    return made;
}

bool near(float given, float right, double allowed) {
    return allowed == 0 ? given == right : std::abs(given - right) <= allowed * (std::abs(right) + 0.01);
}

/// Returns the number of values that are wrong, and says which is the first.
int wrong(std::string_view part, const char* what, const std::vector<float>& given, const std::vector<float>& right,
          std::size_t from, double allowed) {
    int found = 0;
    for (std::size_t i = 0; i < right.size(); ++i) {
        if (near(given[from + i], right[i], allowed)) { continue; }
        if (found++ == 0) {
            std::printf("%.*s: %s %zu is %.9g, expected %.9g\n", static_cast<int>(part.size()), part.data(), what, i,
                        given[from + i], right[i]);
        }
    }
    return found;
}

}  // namespace

int main(int argc, char** argv) {
    const double allowed_to_all = argc > 1 ? std::atof(argv[1]) : 0;
    const std::vector<float> parameters = expected();
    std::vector<float> sums;  // 1 + 2 + 3 times the same, with no rounding in any type
    float squares = 0;
    for (std::size_t i = 0; i < count; ++i) {
        sums.push_back(6 * gradient_of(i, 0));
        squares += gradient_of(i, 0) * gradient_of(i, 0);
    }
    int found = 0;
    int parts = 0;
    const auto check = [&](std::string_view name, const Made& made) {
        const double allowed = name == "fast" ? 1e-4 : allowed_to_all;
        ++parts;
        found += wrong(name, "parameter", made.exact, parameters, 0, allowed);
        for (std::size_t type = 0; type < 3; ++type) {
            found += wrong(name, "sum", made.exact, sums, (2 + type) * count, 0);
        }
        found += wrong(name, "norm", made.exact, {squares}, 5 * count, 0);
        // The draws that round are the same everywhere; a number that differs in its last bit may be drawn otherwise.
        found += wrong(name, "parameter with states of 8 bits", made.stored, parameters, 0, 0.1);
        static const Made first = made;
        found += wrong(name, "like the first part: parameter", made.stored, first.stored, 0, allowed == 0 ? 0 : 0.1);
    };
#define CHECK_PART(name) check(#name, name::made());
    PARTS(CHECK_PART)
    std::printf("%d parts, %d wrong\n", parts, found);
    return found == 0 && parts > 1 ? 0 : 1;
}
