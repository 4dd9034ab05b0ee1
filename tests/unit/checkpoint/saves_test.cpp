// SPDX-License-Identifier: Apache-2.0
// The short forms of `tests/fuzz/run saves` and `tests/fuzz/run resumes`.
#include "fuzz/saves.hpp"
#include "fuzz/resumes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

#include <doctest/doctest.h>

#include "temporary_folder.hpp"
#include "test_size.hpp"

namespace saves_test {

TEST_CASE("random states: what is committed is loaded with the same values, what is refused has changed nothing") {
    const std::uint64_t cases = test_size::reduced() ? 60 : 400;
    std::array<std::size_t, 3> outcomes{};
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
        const temporary_folder::Folder folder;
        CAPTURE(seed);
        REQUIRE_NOTHROW(++outcomes[static_cast<std::size_t>(saves::run(seed, folder.path()))]);
    }
    // Both happen, so that neither promise is kept by the other alone.
    CHECK(outcomes[static_cast<std::size_t>(saves::Outcome::loaded)] > cases / 4);
    CHECK(outcomes[static_cast<std::size_t>(saves::Outcome::refused)] > cases / 20);
}

TEST_CASE("random trainings go on as others: each tensor with its own states and numbers, or a refusal") {
    const std::uint64_t cases = test_size::reduced() ? 60 : 400;
    std::array<std::size_t, 2> outcomes{};
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
        const temporary_folder::Folder folder;
        CAPTURE(seed);
        REQUIRE_NOTHROW(++outcomes[static_cast<std::size_t>(resumes::run(seed, folder.path()))]);
    }
    CHECK(outcomes[static_cast<std::size_t>(resumes::Outcome::loaded)] > cases / 4);
    CHECK(outcomes[static_cast<std::size_t>(resumes::Outcome::refused)] > cases / 30);
}

}  // namespace saves_test
