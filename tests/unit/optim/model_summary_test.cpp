// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>

namespace model_summary_test {

namespace sk = shardkit;

TEST_CASE("model_summary: a line for each parameter with what this rank holds of it") {
    std::vector<std::string> alone(2);
    std::vector<std::string> with_states(2);
    sk::threads::run(sk::DeviceMesh<2, 2>{}, [&](auto& rank) {
        using Layer = sk::Sharded<sk::TensorList<sk::bf16>, sk::FullShard>;
        const sk::ParameterAttributes split{.tp = {sk::TpPlacement::Kind::split, 0}};
        Layer first(rank, "first", {{"weight", {64, 16}, split}});
        Layer second(rank, "second", {{"scalar", {}, {.frozen = true}}, {"gain", {128}}});
        const sk::Model model{first, second};
        sk::AdamW optimizer{model, {}};
        if (rank.grid().coordinate("tp", rank.rank()) != 0) { return; }
        alone[rank.grid().coordinate("dp", rank.rank())] = sk::model_summary(model);
        with_states[rank.grid().coordinate("dp", rank.rank())] = sk::model_summary(model, optimizer);
    });
    // 1024 elements over tp and dp: 256 of 2 bytes and of 4. Behind the scalar, which the first rank has, 64 elements
    // and their padding begin on the second one's shard.
    const std::string head = "parameter      shape     elements  bytes on this rank\n";
    CHECK(alone[0].starts_with(head + "first.weight   [64, 16]      1024            1.50 KiB  split over tp\n"));
    CHECK(alone[0].find("second.scalar  []               1                 6 B  frozen\n") != std::string::npos);
    CHECK(alone[1].find("second.scalar  []               1                 0 B  frozen\n") != std::string::npos);
    CHECK(with_states[0].find("first.weight   [64, 16]      1024            3.50 KiB  split over tp\n") !=
          std::string::npos);
    CHECK(alone[0].find("total                        1153 ") != std::string::npos);
}

}  // namespace model_summary_test
