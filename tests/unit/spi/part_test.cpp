// SPDX-License-Identifier: Apache-2.0
// A part as its author writes it, of public headers and spi/ alone.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/spi/groups.hpp>
#include <shardkit/spi/optimizers.hpp>
#include <shardkit/spi/ranks.hpp>
#include <shardkit/spi/step_observer.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/model.hpp>

#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace part_test {

namespace {

template <class M>
concept HasGroups = requires(M&& model) {
    sk::spi::groups(std::forward<M>(model));
};
static_assert(HasGroups<const sk::Model&> && HasGroups<sk::Model&> && !HasGroups<sk::Model>);

/// Reports a step of a model: its acts, the sum of each group's gradients before they are divided, and how many
/// numbers each group's optimizer states have. Each element of the model counts once, whatever the mesh and the
/// policies.
class StepReport final : public sk::spi::StepObserver {
  public:
    struct OfGroup {
        std::string path;
        double gradients = 0;
        std::size_t states = 0;
    };

    explicit StepReport(const sk::Model& model) : model_(model) {
        for (const sk::spi::Group& group : sk::spi::groups(model)) { reports_.push_back({group.path()}); }
    }
    void before(Act act, std::size_t number, sk::SourceLocation where) override {
        acts_ += std::string(name(act)) + (act == Act::norm ? "" : " " + reports_[number].path) + "\n";
        if (act != Act::update) { return; }
        std::size_t next = 0;
        for (sk::spi::Group& group : sk::spi::groups(model_, where)) {
            if (next++ != number) { continue; }
            group.gradients().wait();
            const std::span<const float> sums = group.gradients().reduced();
            for (const auto& counted : group.counted_segments()) {
                for (std::size_t i = counted.begin; i < counted.end; ++i) { reports_[number].gradients += sums[i]; }
            }
        }
    }

    const std::string& acts() const noexcept { return acts_; }
    /// Collective over the world.
    std::vector<OfGroup> of_all_ranks(sk::Optimizer& optimizer, sk::Rank& rank) {
        sk::spi::OptimizerContents(optimizer).for_each_state([&](const auto& group, const auto& memory) {
            for (OfGroup& report : reports_) {
                if (report.path == group.path()) { report.states += counted_by_rank(group, memory); }
            }
        });
        std::vector<double> mine;
        for (const OfGroup& report : reports_) {
            mine.push_back(report.gradients);
            mine.push_back(static_cast<double>(report.states));
        }
        const auto all = sk::detail::gather_values(rank, mine, {sk::SourceLocation::current()});
        std::vector<OfGroup> sums;
        for (std::size_t g = 0; g < reports_.size(); ++g) {
            OfGroup& sum = sums.emplace_back(OfGroup{reports_[g].path});
            for (std::size_t r = 0; r < rank.world_size(); ++r) {
                sum.gradients += all[r * mine.size() + 2 * g];
                sum.states += static_cast<std::size_t>(all[r * mine.size() + 2 * g + 1]);
            }
        }
        return sums;
    }

  private:
    static std::size_t counted_by_rank(const sk::spi::Group& group, const sk::spi::HeldMemory& memory) {
        using sk::detail::Extent;
        const auto& geometry = group.geometry();
        const Extent counted = memory.extent == Extent::full ? Extent::shard : memory.extent;
        std::size_t count = 0;
        for (std::size_t p = 0; p < geometry.parameters.size(); ++p) {
            if (geometry.replica(p, counted) != 0) { continue; }
            count += intersect(intersect(memory.flat, geometry.range(counted)), geometry.parameters[p].range).size();
        }
        return count;
    }

    sk::Model model_;
    std::vector<OfGroup> reports_;
    std::string acts_;
};

using Layer = sk::Sharded<sk::TensorList<float>, sk::DynamicPolicy>;

/// Makes a step in which element i of each gradient is i + 1 on the first rank, i + 2 on the second, and so on.
void make_step(Layer& a, Layer& b, const sk::Model& model, sk::Optimizer& optimizer) {
    sk::Accumulation accumulation{model};
    static_cast<void>(a.unshard());
    for (Layer* const layer : {&a, &b}) {
        auto gradients = accumulation.gradients(*layer);
        const auto values = gradients.view(0);
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<float>(i + 1 + layer->rank().rank());
        }
        accumulation.add(std::move(gradients));
    }
    optimizer.step(std::move(accumulation));
}

}  // namespace

TEST_CASE("spi: a part counts each element once, whatever the policy, and sees the acts of a step") {
    for (const sk::DynamicPolicy& policy : {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::FullShard{}),
                                            sk::DynamicPolicy(sk::ShardOptimizer{})}) {
        sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
            Layer a(rank, "a", {{"w", {4, 5}}}, {policy});
            Layer b(rank, "b", {{"w", {7}}}, {policy});
            const sk::Model model{a, b};
            sk::AdamW optimizer{model, {}};
            StepReport report(model);
            {
                const sk::spi::Observation observation(model, report);
                make_step(a, b, model, optimizer);
                CHECK(thrown_message<sk::UsageError>([&] {
                          sk::spi::Observation second(model, report);
                      }).find("one at a time") != std::string::npos);
            }
            make_step(a, b, model, optimizer);  // which nobody observes
            CHECK(report.acts() == "use a\nzero a\nadd a\nzero b\nadd b\nnorm\nupdate a\nupdate b\n");
            const auto reports = report.of_all_ranks(optimizer, rank);
            REQUIRE(reports.size() == 2);
            // The ranks' gradients of element i are 3 * (i + 2) together; AdamW has two states.
            CHECK(reports[0].gradients == 3 * (19.0 * 20 / 2 + 20 * 2));
            CHECK(reports[0].states == 2 * 20);
            CHECK(reports[1].gradients == 3 * (6.0 * 7 / 2 + 7 * 2));
            CHECK(reports[1].states == 2 * 7);
        });
    }
}

TEST_CASE("spi: what an optimizer holds is listed with its progress, and a loss scale goes on from numbers") {
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        Layer a(rank, "a", {{"w", {4, 5}}}, {sk::DynamicPolicy(sk::FullShard{})});
        Layer b(rank, "b", {{"w", {7}}}, {sk::DynamicPolicy(sk::FullShard{})});
        const sk::Model model{a, b};
        sk::AdamW optimizer{model, {}};
        make_step(a, b, model, optimizer);
        const sk::spi::OptimizerContents contents(optimizer);
        auto progress = contents.progress();
        const auto held = contents.held();
        REQUIRE(progress.size() == 2);
        REQUIRE(held.size() == 2);
        CHECK(held[1].group == &sk::spi::group(b));
        CHECK(held[1].held[0].name() == "exp_avg");
        CHECK(progress[0].own[0] == 1);
        progress[1].own[0] = 5;
        progress[1].of(0)[0] = 5;
        contents.set_progress(progress.data(), sk::detail::Change::check);
        CHECK(optimizer.steps(b) == 1);
        contents.set_progress(progress.data(), sk::detail::Change::make);
        CHECK(optimizer.steps(b) == 5);
        CHECK(contents.hyper_parameters().size() == 1);

        sk::LossScale loss_scale{rank, {.initial = 16}};
        loss_scale.restore(4, 7);
        CHECK(loss_scale.state().value() == 4);
        CHECK(loss_scale.state().clean_steps() == 7);
    });
}

}  // namespace part_test
