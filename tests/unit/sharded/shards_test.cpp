// SPDX-License-Identifier: Apache-2.0
#include <shardkit/sharded/list_shards.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>

#include "unit/sharded/chosen.hpp"
#include "unit/sharded/custom_policies.hpp"
#include "unit/sharded/trainer.hpp"

namespace sk = shardkit;

namespace shards_test {

namespace {

/// One run as it was listed, its values read through its pointer by the rank that listed it.
struct Run {
    std::size_t tensor;
    std::string kind;
    sk::IndexRange range;
    std::size_t replica;
    bool current;
    std::vector<double> values;
};

double value_at(const sk::ShardInfo& info, std::size_t i) {
    switch (info.type) {
        case sk::ElementType::fp64:
            return static_cast<const double*>(info.data)[i];
        case sk::ElementType::fp32:
            return static_cast<double>(static_cast<const float*>(info.data)[i]);
        case sk::ElementType::bf16:
            return static_cast<double>(static_cast<float>(static_cast<const sk::bf16*>(info.data)[i]));
        default:
            FAIL("unexpected element type");
            return 0;
    }
}

/// The boxes follow each other and name exactly the elements of the run, each by its coordinates.
bool boxes_agree(const sk::ShardInfo& info) {
    std::size_t next = info.range.begin;
    for (const sk::layout::Box& box : info.boxes) {
        if (box.range.begin != next || box.rank != info.shape.rank) { return false; }
        std::size_t numel = 1;
        std::size_t first = 0;
        for (std::size_t d = 0; d < box.rank; ++d) {
            numel *= box.extents[d];
            first = first * info.shape.extents[d] + box.offsets[d];
            if (box.offsets[d] + box.extents[d] > info.shape.extents[d]) { return false; }
        }
        if (numel != box.range.size() || first != box.range.begin) { return false; }
        next = box.range.end;
    }
    return next == info.range.end;
}

/// What all ranks list, and the values of every tensor at that time.
struct Listing {
    std::vector<Run> runs;
    std::vector<std::vector<double>> parameters;
};

template <class Model, class Optimizer>
void list(Model& model, Optimizer& optimizer, std::mutex& mutex, std::vector<Run>& runs) {
    auto infos = optimizer.shards();
    model.groups().for_each([&](auto& layer) {
        for (auto& info : layer.shards()) { infos.push_back(std::move(info)); }
    });
    const std::lock_guard lock(mutex);
    for (const auto& info : infos) {
        CHECK(boxes_agree(info));
        CHECK(info.range.size() == info.local.size());
        Run run{toy::number_of(info.path, info.parameter),
                std::string(info.kind),
                info.range,
                info.replica,
                info.current,
                {}};
        for (std::size_t i = 0; i < info.range.size(); ++i) { run.values.push_back(value_at(info, i)); }
        runs.push_back(std::move(run));
    }
}

/// Trains a little on `mesh` and lists everything that every rank holds: right after a step, and once more when the
/// parameters were read.
template <class Precision, class Policy>
std::pair<Listing, Listing> listed(toy::Mesh mesh, Policy policy) {
    Listing stepped;
    Listing read;
    std::mutex mutex;
    sk::threads::run(mesh, [&](auto& rank) {
        toy::Model<Policy, Precision> model(rank, policy);
        sk::AdamW optimizer{model.groups(), {.learning_rate = 0.01}};
        toy::RankResult result;
        toy::train_rank(rank, model, optimizer, {.steps = 2, .samples = 16}, {}, result);
        auto groups = model.groups();
        sk::Accumulation accumulation{groups};
        groups.for_each([&](auto& layer) { accumulation.add_zero(layer); });
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));  // the moments alone move the parameters
        list(model, optimizer, mutex, stepped.runs);
        const auto parameters = model.read();
        CHECK(parameters != result.parameters);
        list(model, optimizer, mutex, read.runs);
        if (rank.rank() == 0) { stepped.parameters = read.parameters = parameters; }
    });
    return {std::move(stepped), std::move(read)};
}

/// Puts the runs of replica 0 together. Each element of each tensor must come exactly once.
std::map<std::string, std::vector<std::vector<double>>> assembled(const std::vector<Run>& runs) {
    std::map<std::string, std::vector<std::vector<double>>> whole;
    std::map<std::string, std::vector<std::vector<int>>> times;
    for (const Run& run : runs) {
        auto& values = whole[run.kind];
        auto& count = times[run.kind];
        values.resize(toy::tensors.size());
        count.resize(toy::tensors.size());
        values[run.tensor].resize(toy::tensors[run.tensor].numel);
        count[run.tensor].resize(toy::tensors[run.tensor].numel);
        REQUIRE(run.range.end <= toy::tensors[run.tensor].numel);
        if (run.replica != 0) { continue; }
        for (std::size_t i = 0; i < run.values.size(); ++i) {
            values[run.tensor][run.range.begin + i] = run.values[i];
            ++count[run.tensor][run.range.begin + i];
        }
    }
    for (const auto& counted : times) {
        CAPTURE(counted.first);
        const auto& count = counted.second;
        for (std::size_t t = 0; t < toy::tensors.size(); ++t) {
            CHECK(count[t] == std::vector<int>(toy::tensors[t].numel, 1));
        }
    }
    return whole;
}

template <class Precision>
void check(const Listing& listing) {
    auto whole = assembled(listing.runs);
    CHECK(whole.size() == (Precision::has_master ? 4 : 3));
    CHECK(whole["parameter"] == listing.parameters);
    // A copy holds what the first one holds, where it says so.
    for (const Run& run : listing.runs) {
        CHECK((run.current || (run.replica > 0 && run.kind == "parameter")));
        const auto& values = whole[run.kind][run.tensor];
        CHECK((!run.current || std::equal(run.values.begin(), run.values.end(),
                                          values.begin() + static_cast<std::ptrdiff_t>(run.range.begin))));
    }
    // The states are there for every element: the second moment of a gradient that is not zero is above zero.
    for (const auto& tensor : whole["exp_avg_sq"]) {
        for (const double v : tensor) { CHECK(v > 0); }
    }
    if constexpr (Precision::has_master) {
        // What windows show is the master, rounded once.
        for (std::size_t t = 0; t < toy::tensors.size(); ++t) {
            for (std::size_t i = 0; i < toy::tensors[t].numel; ++i) {
                const auto rounded =
                    static_cast<typename Precision::Gather>(static_cast<float>(whole["master"][t][i]));
                CHECK(static_cast<double>(static_cast<float>(rounded)) == whole["parameter"][t][i]);
            }
        }
    }
}

/// `updates_reach`: whether every rank's copy is current after a step.
template <class Precision, class Policy>
void check(std::size_t dp, std::size_t tp, std::size_t cp, Policy policy, bool updates_reach) {
    CAPTURE(Policy::name);
    CAPTURE(dp);
    CAPTURE(tp);
    CAPTURE(cp);
    const auto [stepped, read] = listed<Precision>(toy::Mesh(dp, tp, cp), toy::chosen(policy));
    check<Precision>(stepped);
    check<Precision>(read);
    CHECK(std::all_of(read.runs.begin(), read.runs.end(), [](const Run& run) { return run.current; }));
    const auto stale =
        std::count_if(stepped.runs.begin(), stepped.runs.end(), [](const Run& run) { return !run.current; });
    CHECK((stale == 0) == (updates_reach || dp * cp == 1));
}

}  // namespace

TEST_CASE("over all ranks the runs of replica 0 cover each element of each tensor once, and hold its value") {
    for (const std::size_t dp : {1U, 2U, 3U, 4U, 8U}) {
        check<sk::Precision<double>>(dp, 1, 1, sk::NoShard{}, true);
        check<sk::Precision<double>>(dp, 1, 1, sk::FullShard{}, true);
        check<sk::Precision<sk::bf16>>(dp, 1, 1, sk::ShardOptimizer{}, false);
        check<sk::Precision<sk::bf16>>(dp, 1, 1, toy::PairedGradOp{}, dp % 2 == 1);
        check<sk::Precision<double>>(dp, 1, 1, sk::ShardGradOp{}, false);
        check<sk::Precision<sk::bf16>>(dp, 1, 1, sk::NoShard{}, true);
    }
}

TEST_CASE("the same on meshes of more axes") {
    check<sk::Precision<double>>(2, 1, 2, sk::NoShard{}, true);
    check<sk::Precision<double>>(2, 1, 2, sk::FullShard{}, true);
    check<sk::Precision<double>>(4, 1, 1, sk::HybridShard<2>{}, true);
    check<sk::Precision<double>>(4, 1, 1, sk::SecondaryShard<2>{}, true);
    check<sk::Precision<double>>(4, 1, 1, sk::HybridOptimizer<2>{}, false);
    check<sk::Precision<sk::bf16>>(4, 2, 1, sk::HybridOptimizer<2>{}, false);
    check<sk::Precision<double>>(2, 1, 2, sk::ShardOver<sk::FullShard, sk::Axes<sk::DpShard, sk::Cp>>{}, true);
    check<sk::Precision<sk::bf16>>(2, 2, 1, sk::ShardOptimizer{}, false);
}

}  // namespace shards_test
