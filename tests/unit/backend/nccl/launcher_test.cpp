// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/launcher.hpp>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../verb_checks.hpp"
#include "gpu_ranks.hpp"

namespace launcher_test {

namespace {

using namespace shardkit;
using rank_checks::contains;
using Variables = std::map<std::string, std::string>;

constexpr int gpus = 4;

Variables complete() {
    return {{"RANK", "5"},        {"WORLD_SIZE", "8"},     {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
            {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
}
nccl::Launcher launcher(const Variables& variables, int visible = gpus) {
    return nccl::Launcher::from(
        [&](const char* name) -> std::optional<std::string> {
            const auto found = variables.find(name);
            return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
        },
        visible);
}
/// What the launcher says about the complete variables with this one changed; "-" stands for a missing one.
std::string complaint(const std::string& name, const std::string& value) {
    Variables variables = complete();
    variables[name] = value;
    if (value == "-") { variables.erase(name); }
    try {
        launcher(variables);
    } catch (const std::invalid_argument& error) { return error.what(); }
    return "none";
}

}  // namespace

TEST_CASE("nccl launcher: a job's variables give each process its place") {
    const nccl::Launcher result = launcher(complete());
    CHECK(result.rank() == 5);
    CHECK(result.world_size() == 8);
    CHECK(result.local_rank() == 1);
    CHECK(result.device() == 1);
    CHECK(result.meeting().host == "a");
    CHECK(result.meeting().port == 29500);
    CHECK(result.meeting().token.empty());
    CHECK(complaint("LOCAL_WORLD_SIZE", "-") == "none");
}

TEST_CASE("nccl launcher: a process that sees one GPU uses that, whatever its number on the machine") {
    const nccl::Launcher result = launcher(complete(), 1);
    CHECK(result.local_rank() == 1);
    CHECK(result.device() == 0);
}

TEST_CASE("nccl launcher: every variable that is wrong is named with its value") {
    for (const char* const name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
        CHECK(contains(complaint(name, "-"), std::string(name) + " is not set"));
        CHECK(contains(complaint(name, ""), std::string(name) + " is empty"));
    }
    for (const char* const name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"}) {
        for (const char* const value : {"x", "-1", "1x", " 1", "1.5", "99999999999999999999"}) {
            CHECK(contains(complaint(name, value), std::string(name) + "=" + value + " is no whole number"));
        }
    }
    CHECK(contains(complaint("RANK", "8"), "RANK=8 is not below WORLD_SIZE=8"));
    CHECK(contains(complaint("WORLD_SIZE", "0"), "RANK=5 is not below WORLD_SIZE=0"));
    CHECK(contains(complaint("LOCAL_RANK", "4"), "LOCAL_RANK=4 is not below LOCAL_WORLD_SIZE=4"));
    CHECK(contains(complaint("LOCAL_RANK", "4"),
                   "LOCAL_RANK=4 is not below the number of GPUs of this machine, which is 4"));
    CHECK(contains(complaint("LOCAL_WORLD_SIZE", "9"), "LOCAL_WORLD_SIZE=9 is above WORLD_SIZE=8"));
    CHECK(contains(complaint("MASTER_PORT", "0"), "MASTER_PORT=0 is no port between 1 and 65535"));
    CHECK(contains(complaint("MASTER_PORT", "65536"), "MASTER_PORT=65536 is no port between 1 and 65535"));

    std::string all;
    try {
        launcher({});
    } catch (const std::invalid_argument& error) { all = error.what(); }
    CHECK(contains(all,
                   "Launcher: RANK is not set; WORLD_SIZE is not set; LOCAL_RANK is not set; MASTER_ADDR is not "
                   "set; MASTER_PORT is not set ("));
    CHECK(contains(all, "launcher_test.cpp:"));
}

TEST_CASE("nccl launcher: where the processes meet") {
    Variables variables = complete();
    for (const char* const address : {"fe80::1", "[fe80::1]"}) {
        variables["MASTER_ADDR"] = address;
        CHECK(launcher(variables).meeting().host == "fe80::1");
    }
    variables["SLURM_JOB_ID"] = "17";
    CHECK(launcher(variables).meeting().token == "17");
    variables["TORCHELASTIC_RUN_ID"] = "run";
    CHECK(launcher(variables).meeting().token == "run");
    variables["SHARDKIT_TOKEN"] = "secret";
    CHECK(launcher(variables).meeting().token == "secret");
    variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // torchrun's store listens at MASTER_PORT
    CHECK(launcher(variables).meeting().port == 29501);
    variables["MASTER_PORT"] = "65535";
    CHECK_THROWS_AS(launcher(variables), std::invalid_argument);
}

TEST_CASE("nccl launcher: a World from the environment, which stays as it was") {
    gpu_ranks::restart();
    const Variables variables{{"RANK", "0"},
                              {"WORLD_SIZE", "1"},
                              {"LOCAL_RANK", "2"},
                              {"MASTER_ADDR", "127.0.0.1"},
                              {"MASTER_PORT", "29511"}};
    for (const auto& [name, value] : variables) { REQUIRE(::setenv(name.c_str(), value.c_str(), 1) == 0); }
    bool ran = false;
    nccl::run(
        DeviceMesh<1>{},
        [&](auto& rank) {
            int device = -1;
            REQUIRE(cudaGetDevice(&device) == cudaSuccess);
            CHECK(device == 2);
            CHECK(std::getenv("NCCL_COMM_ID") == nullptr);
            verb_checks::check_all_reduce<float, float>(rank.world(), 10, 1);
            ran = true;
        },
        {}, gpu_ranks::patient());
    CHECK(ran);
    CHECK(standin::live() == standin::Live{});
    for (const auto& [name, value] : variables) { REQUIRE(::unsetenv(name.c_str()) == 0); }
    CHECK_THROWS_AS(nccl::Launcher::from_environment(), std::invalid_argument);
}

}  // namespace launcher_test
