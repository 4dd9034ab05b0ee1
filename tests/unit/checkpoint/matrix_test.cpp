// SPDX-License-Identifier: Apache-2.0
// Every mesh of some worlds with every policy and several precisions: each loads what the one before it has saved,
// and saves the same bytes. What a load gives depends on the bytes alone, so that this speaks for all pairs.
#include <cstddef>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/fp16.hpp>

#include "checkpoint_training.hpp"
#include "temporary_folder.hpp"
#include "test_size.hpp"

namespace matrix_test {

namespace {

using namespace checkpoint_training;
using temporary_folder::contents;
using temporary_folder::Folder;

/// `one_of`: in slow builds one of so many.
template <class T, class Optimizer>
void check_all(std::size_t files, std::size_t one_of) {
    const Folder folder;
    InCache calls;
    std::string last = folder.file("first");
    const auto values = save_first<T, Optimizer>(last, calls);
    const auto expected = contents(last + "/step-00000001");
    REQUIRE(expected.size() == files);
    std::size_t number = 0;
    for (const std::size_t world : {1U, 2U, 3U, 5U, 8U}) {
        for (const Mesh& mesh : meshes(world)) {
            for (const sk::DynamicPolicy& policy : policies(mesh)) {
                if (number++ % (test_size::reduced() ? one_of : 1) != 0) { continue; }
                CAPTURE(mesh.describe());
                CAPTURE(policy.name());
                const std::string next = folder.file(std::to_string(number));
                REQUIRE_NOTHROW(sk::threads::run(
                    mesh, [&](auto& rank) { load_and_save<T, Optimizer>(rank, policy, values, last, next, calls); }));
                REQUIRE(contents(next + "/step-00000001") == expected);
                std::filesystem::remove_all(last);
                last = next;
            }
        }
    }
    CHECK(number == 101);
}

}  // namespace

TEST_CASE(
    "all meshes of 1, 2, 3, 5 and 8 ranks with all policies load and save the same bytes: fp32, AdamW, loss scale") {
    check_all<float, WithAdamW>(5, 7);
}
TEST_CASE("the same in bf16 with masters, AdamW and a loss scale") { check_all<sk::bf16, WithAdamW>(6, 7); }
TEST_CASE("the same in fp16 with masters, AdamW and a loss scale") { check_all<sk::fp16, WithAdamW>(6, 23); }
TEST_CASE("the same in fp64 with SGD, which has no momentum") { check_all<double, WithPlainSgd>(3, 23); }

}  // namespace matrix_test
