// SPDX-License-Identifier: Apache-2.0
// Stores and plan follow one table: where a row is changed, the log and the plan change alike. The library's own
// table is renamed while its header is read, and one that a test changes takes its place; so this is a program of its
// own.
#define placement_table placement_table_of_the_library
#include <shardkit/policy/placement_table.hpp>
#undef placement_table

#include <functional>
#include <span>
#include <string>
#include <type_traits>

namespace planted {
inline std::function<void(shardkit::detail::PlacementTable&)> change;
}  // namespace planted

namespace shardkit::detail {
constexpr PlacementTable placement_table(const rules::PolicyValues& policy, const ElementSizes& elements,
                                         bool trainable, std::size_t slices = 1, std::size_t sources = 1) {
    PlacementTable table = placement_table_of_the_library(policy, elements, trainable, slices, sources);
    if (!std::is_constant_evaluated() && planted::change) { planted::change(table); }
    return table;
}
}  // namespace shardkit::detail

#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>

#include "unit/plan/planned_and_logged.hpp"

namespace sk = shardkit;

namespace rows_test {

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
using Change = std::function<void(sk::detail::PlacementTable&)>;

/// The table with every collective as `changed` makes it, without those for which that is false.
Change each_collective(std::function<bool(sk::detail::CollectiveRow&)> changed) {
    return [changed](sk::detail::PlacementTable& table) {
        sk::detail::PlacementTable made;
        made.updated = table.updated;
        made.reduced = table.reduced;
        for (const sk::detail::BufferRow& row : table.buffers()) { made.add(row); }
        for (sk::detail::CollectiveRow row : table.collectives()) {
            if (changed(row)) { made.add(row); }
        }
        table = made;
    };
}
Change without(sk::detail::When when, sk::detail::Over over) {
    return each_collective([=](sk::detail::CollectiveRow& row) { return row.when != when || row.over != over; });
}

toy::PlannedAndLogged step(const Mesh& mesh, const sk::DynamicPolicy& policy, const Change& change) {
    planted::change = change;
    auto result = toy::planned_and_logged<sk::Precision<float>>(mesh, {policy}, 2);
    planted::change = nullptr;
    return result;
}

std::string text(const toy::Rows& rows) {
    std::string lines;
    for (const auto& [key, row] : rows) {
        lines += key.first + " over " + key.second + ": " + std::to_string(row.calls) + '\n';
    }
    return lines;
}

/// Plan and log of the changed table are each other's, and another table's than the library's.
void check(const Mesh& mesh, const sk::DynamicPolicy& policy, const Change& change) {
    CAPTURE(policy.name());
    CAPTURE(mesh.describe());
    const auto given = step(mesh, policy, nullptr);
    const auto changed = step(mesh, policy, change);
    CHECK(toy::difference(given, mesh.size()) == "");
    CHECK(toy::difference(changed, mesh.size()) == "");
    CHECK(text(given.logged) != text(changed.logged));
    CHECK(text(given.planned) != text(changed.planned));
}

}  // namespace

TEST_CASE("a row that is removed is neither called nor planned") {
    check(Mesh(4, 1, 1), sk::DynamicPolicy(sk::FullShard{}),
          without(sk::detail::When::each_window, sk::detail::Over::shards));
    check(Mesh(4, 1, 1), sk::DynamicPolicy(sk::ShardOptimizer{}),
          without(sk::detail::When::updated_window, sk::detail::Over::shards));
    check(Mesh(4, 1, 1), sk::DynamicPolicy(sk::FullShard{}),
          without(sk::detail::When::first_microbatch, sk::detail::Over::shards));
    check(Mesh(4, 1, 1), sk::DynamicPolicy(sk::ShardGradOp{}),
          without(sk::detail::When::later_microbatch, sk::detail::Over::shards));
    check(Mesh(4, 1, 1), sk::DynamicPolicy(sk::NoShard{}),
          without(sk::detail::When::last_microbatch, sk::detail::Over::data));
    check(Mesh(4, 1, 2), sk::DynamicPolicy(sk::HybridShard<2>{}),
          without(sk::detail::When::last_microbatch, sk::detail::Over::replicas));
    check(Mesh(2, 2, 1), sk::DynamicPolicy(sk::FullShard{}),
          without(sk::detail::When::last_microbatch, sk::detail::Over::tp));
}

TEST_CASE("a row over other ranks is called and planned over them, by their label") {
    const Change over_shards = each_collective([](sk::detail::CollectiveRow& row) {
        if (row.over == sk::detail::Over::data) { row.over = sk::detail::Over::shards; }
        return true;
    });
    check(Mesh(2, 1, 2), sk::DynamicPolicy(sk::NoShard{}), over_shards);
    const Change over_data = each_collective([](sk::detail::CollectiveRow& row) {
        if (row.over == sk::detail::Over::replicas) { row.over = sk::detail::Over::data; }
        return true;
    });
    check(Mesh(4, 1, 2), sk::DynamicPolicy(sk::HybridShard<2>{}), over_data);
}

TEST_CASE("a row of another moment is called and planned as often as that comes") {
    const Change once = each_collective([](sk::detail::CollectiveRow& row) {
        if (row.when == sk::detail::When::each_window) { row.when = sk::detail::When::updated_window; }
        return true;
    });
    const auto keep_gathered = [&](sk::detail::PlacementTable& table) {
        once(table);
        sk::detail::PlacementTable made;
        made.updated = table.updated;
        made.reduced = table.reduced;
        for (sk::detail::BufferRow row : table.buffers()) {
            if (row.role == sk::detail::Role::gathered) { row.held = sk::detail::Held::always; }
            made.add(row);
        }
        for (const sk::detail::CollectiveRow& row : table.collectives()) { made.add(row); }
        table = made;
    };
    check(Mesh(4, 1, 1), sk::DynamicPolicy(sk::FullShard{}), keep_gathered);
    auto result = step(Mesh(4, 1, 1), sk::DynamicPolicy(sk::FullShard{}), keep_gathered);
    CHECK(result.planned[{"all_gather", "dp"}].calls == 4 * 3);  // of three groups, one each on four ranks
    CHECK(result.logged[{"all_gather", "dp"}].calls == 4 * 3);
}

TEST_CASE("a verb of another row is called and planned") {
    const Change all_reduced = each_collective([](sk::detail::CollectiveRow& row) {
        if (row.verb == sk::Verb::reduce_scatter) { row.verb = sk::Verb::all_reduce; }
        return true;
    });
    check(Mesh(4, 1, 1), sk::DynamicPolicy(sk::ShardOptimizer{}), all_reduced);
}

TEST_CASE("a buffer of another row takes the memory that is planned") {
    // Reduced gradients in a buffer of their own, though the types would let them lie where they are.
    const auto beside = [](sk::detail::PlacementTable& table) {
        sk::detail::PlacementTable made;
        made.updated = table.updated;
        made.reduced = table.reduced;
        for (const sk::detail::BufferRow& row : table.buffers()) { made.add(row); }
        made.add(
            {sk::detail::Role::reduced, table.reduced, sk::detail::Held::always, sk::detail::ElementRole::reduction});
        for (sk::detail::CollectiveRow row : table.collectives()) {
            if (row.target == sk::detail::Role::gradients) { row.target = sk::detail::Role::reduced; }
            if (row.source == sk::detail::Role::gradients && row.extent != sk::detail::Extent::full) {
                row.source = sk::detail::Role::reduced;
            }
            made.add(row);
        }
        table = made;
    };
    const Mesh mesh(4, 1, 1);
    const auto held = [&](const Change& change) {
        planted::change = change;
        std::size_t bytes = 0;
        std::size_t planned = 0;
        sk::threads::run(mesh, [&](auto& rank) {
            sk::Sharded<toy::PlannedPair, sk::ShardOptimizer> layer(rank, "layer");
            if (rank.rank() != 0) { return; }
            auto& gradients = sk::spi::group(layer).gradients();
            const std::span<const float> full = gradients.full();
            const std::span<const float> reduced = gradients.reduced();
            bytes = full.size_bytes();
            if (reduced.data() < full.data() || reduced.data() >= full.data() + full.size()) {
                bytes += reduced.size_bytes();
            }
            planned = sk::plan(sk::Model{layer}).memory.gradients.value;
        });
        planted::change = nullptr;
        CHECK(bytes == planned);
        return bytes;
    };
    const std::size_t given = held(nullptr);
    CHECK(held(beside) == given + given / 4);
    CHECK(toy::difference(step(mesh, sk::DynamicPolicy(sk::ShardOptimizer{}), beside), mesh.size()) == "");
}

}  // namespace rows_test
