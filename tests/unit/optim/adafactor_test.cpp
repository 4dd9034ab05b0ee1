// SPDX-License-Identifier: Apache-2.0
// Adafactor on every kind of mesh and policy against its formula over whole tensors; saved and resumed elsewhere; its
// plan against one that exists; and what a rule with sums over whole parameters refuses.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/adafactor.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/local_shards.hpp>
#include <shardkit/reshard.hpp>
#include <shardkit/shardkit.hpp>
#include <shardkit/verbs.hpp>
#include <shardkit/verify.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace adafactor_test {

namespace sk = shardkit;

namespace {

using List = sk::TensorList<double>;
using Layer = sk::Sharded<List, sk::DynamicPolicy>;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
constexpr sk::AdafactorOptions options{
    .learning_rate = 0.3, .beta2_decay = 0.7, .epsilon = 1e-6, .clip_threshold = 1.1, .weight_decay = 0.25};

struct Tensor {
    std::string name;
    std::vector<std::size_t> shape;
    std::size_t matrices, rows, columns;  // a vector has no columns
};
const std::vector<Tensor> tensors{
    {"wide", {6, 8}, 1, 6, 8}, {"bias", {5}, 1, 5, 0}, {"stack", {2, 3, 4}, 2, 3, 4}, {"tall", {7, 1}, 1, 7, 1}};
/// Of which tp splits the columns of one, and the rows of another.
List list() {
    return {{"wide", {6, 8}, {.tp = {sk::TpPlacement::Kind::split, 1}}},
            {"bias", {5}},
            {"stack", {2, 3, 4}, {.tp = {sk::TpPlacement::Kind::split, 0}}},
            {"tall", {7, 1}}};
}

double first_of(std::string_view name, std::uint64_t i) {
    return std::sin(static_cast<double>(3 * i + name.size())) / static_cast<double>(name.size());
}
/// The gradients of the first tensor's first row are zero in the first step.
double gradient_of(std::string_view name, int step, std::size_t i) {
    if (name == "wide" && step == 0 && i < 8) { return 0; }
    return std::cos(static_cast<double>(i * i + name.size()) * (step + 1)) * (name == "bias" ? 1e-3 : 4);
}

/// What torch.optim.Adafactor makes of a whole tensor (_single_tensor_adafactor), in fp64.
std::vector<double> by_hand(const Tensor& of, int steps) {
    const std::size_t columns = std::max<std::size_t>(of.columns, 1);
    const std::size_t numel = of.matrices * of.rows * columns;
    std::vector<double> p(numel), row_var(of.matrices * of.rows), col_var(of.matrices * of.columns);
    for (std::size_t i = 0; i < numel; ++i) { p[i] = first_of(of.name, i); }
    const auto norm = [](const std::vector<double>& values) {
        double sum = 0;
        for (const double value : values) { sum += value * value; }
        return std::sqrt(sum);
    };
    for (int step = 0; step < steps; ++step) {
        const double t = step + 1;
        const double one_minus_beta2 = std::pow(t, -options.beta2_decay);
        const double rho = std::min(options.learning_rate, 1 / std::sqrt(t));
        const double root = std::sqrt(static_cast<double>(numel));
        const double alpha = std::max(options.least_scale, norm(p) / root) * rho;
        for (double& value : p) { value *= 1 - options.learning_rate * options.weight_decay; }
        std::vector<double> update(numel);
        for (std::size_t m = 0; m < of.matrices; ++m) {
            const auto g = [&](std::size_t r, std::size_t c) {
                return gradient_of(of.name, step, (m * of.rows + r) * columns + c);
            };
            const auto lerp = [&](double& moment, double mean) { moment += one_minus_beta2 * (mean - moment); };
            double mean_of_rows = 0;
            for (std::size_t r = 0; r < of.rows; ++r) {
                double sum = 0;
                for (std::size_t c = 0; c < columns; ++c) { sum += g(r, c) * g(r, c); }
                lerp(row_var[m * of.rows + r], sum / static_cast<double>(columns));
                mean_of_rows += row_var[m * of.rows + r] / static_cast<double>(of.rows);
            }
            for (std::size_t c = 0; c < of.columns; ++c) {
                double sum = 0;
                for (std::size_t r = 0; r < of.rows; ++r) { sum += g(r, c) * g(r, c); }
                lerp(col_var[m * of.columns + c], sum / static_cast<double>(of.rows));
            }
            for (std::size_t r = 0; r < of.rows; ++r) {
                for (std::size_t c = 0; c < columns; ++c) {
                    double moment = row_var[m * of.rows + r];
                    if (of.columns > 0) {
                        moment *= col_var[m * of.columns + c] / std::max(mean_of_rows, options.epsilon);
                    }
                    update[(m * of.rows + r) * columns + c] =
                        g(r, c) / std::sqrt(std::max(moment, options.epsilon * options.epsilon));
                }
            }
        }
        const double denominator = std::max(1.0, norm(update) / (root * options.clip_threshold));
        for (std::size_t i = 0; i < numel; ++i) { p[i] -= alpha / denominator * update[i]; }
    }
    return p;
}

struct Training {
    Training(sk::Rank& rank, const sk::DynamicPolicy& policy)
        : first(rank, "first", list(), {policy}),
          second(rank, "second", list(), {policy}),
          model(first, second),
          optimizer(model, options),
          loss_scale(rank, {.initial = 2}),
          state(model, optimizer, loss_scale) {
        model.initialize([](auto, std::string_view name, auto i) { return first_of(name, i); });
    }
    void step(int number, double factor = 1) {
        factor *= loss_scale.value();
        sk::Accumulation accumulation{model};
        for (Layer* const layer : {&first, &second}) {
            auto gradients = accumulation.gradients(*layer);
            for (std::size_t p = 0; p < layer->parameters().size(); ++p) {
                const auto& parameter = layer->parameters()[p];
                auto view = gradients.view(p);
                parameter.part.for_each_run(0, view.size(), [&](std::size_t i, std::size_t whole, std::size_t run) {
                    for (std::size_t e = 0; e < run; ++e) {
                        view.data()[i + e] = factor * gradient_of(parameter.name, number, whole + e);
                    }
                });
            }
            accumulation.add(std::move(gradients));
        }
        optimizer.step(std::move(accumulation), {.loss_scale = &loss_scale});
    }
    /// The largest difference to what the formula makes of all tensors.
    double off(int steps) {
        double most = 0;
        for (const Tensor& of : tensors) {
            const std::vector<double> expected = by_hand(of, steps);
            for (Layer* const layer : {&first, &second}) {
                std::vector<double> values(expected.size());
                layer->read_full(of.name, values);
                for (std::size_t i = 0; i < values.size(); ++i) {
                    const double off = std::abs(values[i] - expected[i]);
                    most = std::isnan(off) ? off : std::max(most, off);
                }
            }
        }
        return most;
    }

    Layer first, second;
    sk::Model model;
    sk::Adafactor optimizer;
    sk::LossScale loss_scale;
    sk::checkpoint::State state;
};

struct Place {
    Mesh mesh;
    sk::DynamicPolicy policy;
};
std::vector<Place> places() {
    return {{Mesh(1, 1, 1), sk::DynamicPolicy(sk::NoShard{})},
            {Mesh(2, 1, 1), sk::DynamicPolicy(sk::NoShard{})},
            {Mesh(3, 1, 1), sk::DynamicPolicy(sk::ShardOptimizer{})},
            {Mesh(5, 1, 1), sk::DynamicPolicy(sk::FullShard{})},
            {Mesh(2, 2, 1), sk::DynamicPolicy(sk::FullShard{})},
            {Mesh(1, 2, 2), sk::DynamicPolicy(sk::ShardGradOp{})},
            {Mesh(4, 1, 1), sk::DynamicPolicy(sk::HybridShard<2>{})},
            {Mesh(4, 2, 1), sk::DynamicPolicy(sk::HybridOptimizer<2>{})}};
}

}  // namespace

TEST_CASE("Adafactor follows its formula under every policy, skips a step, and resumes on any mesh") {
    const temporary_folder::Folder folder;
    for (const Place& place : places()) {
        CAPTURE(place.mesh.describe());
        const std::string saved = folder.file(place.mesh.describe() + std::string(place.policy.name()));
        std::vector<double> off(place.mesh.size());
        sk::threads::run(place.mesh, [&](auto& rank) {
            Training training(rank, place.policy);
            training.step(0);
            training.step(1, std::numeric_limits<double>::infinity());
            training.step(1);
            off[rank.rank()] = training.off(2);
            sk::checkpoint::save(rank, saved, 1, training.state);
        });
        for (const double each : off) { CHECK(each < 1e-14); }
        for (const char* name : {"row_var", "col_var", "variance"}) {
            CHECK(temporary_folder::contents(saved).contains("step-00000001/state/" + std::string(name) +
                                                             ".safetensors"));
        }
        const sk::safetensors::File rows(saved + "/step-00000001/state/row_var.safetensors");
        CHECK(rows.find("first.stack")->shape.describe() == "[2, 3]");
        CHECK(rows.find("first.bias") == nullptr);
        for (const std::size_t other : {std::size_t{0}, std::size_t{3}, std::size_t{7}}) {
            const Place to = places()[other];
            std::vector<double> after(to.mesh.size());
            sk::threads::run(to.mesh, [&](auto& rank) {
                Training training(rank, to.policy);
                training.step(5, 100);  // what it has kept before is gone
                sk::checkpoint::load(rank, saved + "/step-00000001", training.state);
                training.step(2);
                training.step(3);
                after[rank.rank()] = training.off(4);
            });
            CAPTURE(to.mesh.describe());
            for (const double each : after) { CHECK(each < 1e-14); }
        }
    }
}

TEST_CASE("what is kept comes to a mesh of other ranks without a file") {
    std::vector<double> off(7);
    sk::threads::run(sk::DeviceMesh<7>{}, [&](auto& rank) {
        const bool trains = rank.rank() < 4;
        const Place place = places()[trains ? 4 : 2];
        const auto part = sk::split(rank.world(), trains ? 0 : 1, rank.rank(), trains ? "from" : "to");
        sk::MeshRank<Mesh> own{place.mesh, part};
        Training training(own, place.policy);
        if (trains) {
            training.step(0);
            training.step(1);
        } else {
            training.step(5, 100);  // what it has kept before is gone
        }
        using Side = sk::ReshardSide;
        const Side from = trains ? Side(training.state) : nullptr;
        const Side to = trains ? Side(nullptr) : Side(training.state);
        sk::reshard(rank, sk::plan_reshard(rank, from, to), from, to);
        training.step(2);
        training.step(3);
        off[rank.rank()] = training.off(4);
    });
    for (const double each : off) { CHECK(each < 1e-14); }
}

TEST_CASE(
    "split masters of bf16 parameters move as masters of their own do, and without masters parameters move too") {
    using Small = sk::Sharded<sk::TensorList<sk::bf16>, sk::FullShard>;
    /// The elements of two ranks' shards after three steps.
    const auto train = [](sk::MasterWeights master) {
        std::vector<std::vector<float>> all(2);
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            Small layer{rank, "layer", {{"weight", {9, 30}}}, {.master = master}};
            layer.initialize([](auto, auto, auto i) { return 0.0137 * static_cast<double>(i % 31) - 0.15; });
            sk::Model model{layer};
            sk::Adafactor optimizer{model, {.learning_rate = 1e-3}};
            for (int number = 0; number < 3; ++number) {
                sk::Accumulation accumulation{model};
                auto gradients = accumulation.gradients(layer);
                auto view = gradients.view(0);
                for (std::size_t i = 0; i < view.size(); ++i) {
                    view.data()[i] = sk::bf16(static_cast<float>(gradient_of("weight", number, i)));
                }
                accumulation.add(std::move(gradients));
                optimizer.step(std::move(accumulation));
            }
            sk::read_shards(layer, [&](auto run) {
                for (const auto value : run.values) { all[rank.rank()].push_back(static_cast<float>(value)); }
            });
        });
        return all;
    };
    const auto kept = train(sk::MasterWeights::kept);
    CHECK(kept == train(sk::MasterWeights::split));
    const auto none = train(sk::MasterWeights::none);
    REQUIRE(kept[0].size() + kept[1].size() == 270);
    double off = 0;
    for (std::size_t rank = 0; rank < 2; ++rank) {
        REQUIRE(kept[rank].size() == none[rank].size());
        for (std::size_t i = 0; i < kept[rank].size(); ++i) {
            off = std::max(off, static_cast<double>(std::abs(kept[rank][i] - none[rank][i])));
        }
    }
    CHECK(off > 0);
    CHECK(off < 0.005);  // of numbers up to 0.3, which are rounded by up to 2^-10 in each of three steps
}

TEST_CASE("the plan of the passes has the bytes and the traffic of an optimizer that exists") {
    for (const Place& place : places()) {
        CAPTURE(place.mesh.describe());
        sk::planner::FactoredPlan plan;
        std::vector<std::size_t> bytes(place.mesh.size());
        std::vector<sk::TrafficLog> logs(place.mesh.size());
        sk::threads::run(place.mesh, [&](auto& rank) {
            if (rank.rank() == 0) {
                sk::planner::FactoredPlanner<sk::rules::AdafactorRule, double> planner{
                    place.mesh.grid(), {.engine = rank.world().traits()}};
                for (const char* path : {"first", "second"}) {
                    planner.add<List, sk::DynamicPolicy>(path, list(), {place.policy});
                }
                plan = planner.plan();
            }
            Training training(rank, place.policy);
            sk::Accumulation accumulation{training.model};
            accumulation.add_zero(training.first);
            accumulation.add_zero(training.second);
            auto reduced = sk::reduce(std::move(accumulation), sk::sum);
            rank.traffic().clear();
            bytes[rank.rank()] = training.optimizer.bytes_of_passes();
            training.optimizer.step(std::move(reduced));
            logs[rank.rank()] = rank.traffic();
            const sk::Adafactor moved_to = std::move(training.optimizer);
            CHECK_THROWS_AS(training.optimizer.bytes_of_passes(), sk::UsageError);
        });
        CHECK(plan.bytes() == sk::ByteCount(*std::max_element(bytes.begin(), bytes.end())));
        // 2 of 6 + 8, 5, 2 (3 + 4) and 7 + 1 numbers, in double.
        CHECK(plan.kept == sk::ByteCount(2 * (14 + 5 + 14 + 8) * 8));
        const sk::planner::PlannedTraffic planned = plan.traffic.total(sk::Verb::all_reduce);
        std::uint64_t moved = 0;
        for (const sk::TrafficLog& log : logs) {
            const auto counted = log.total(sk::Verb::all_reduce);
            CHECK(counted.calls == planned.calls);
            CHECK(counted.payload.value == planned.payload.value);
            moved += counted.moved.value;
        }
        // A mean over ranks, rounded down in each call.
        const std::uint64_t ranks = logs.size();
        CHECK(planned.moved.value * ranks <= moved);
        CHECK(moved < (planned.moved.value + planned.calls + 1) * ranks);
    }
}

namespace {

thread_local bool drifts = false;
/// Adafactor on ranks of which some add to what they keep.
template <class A>
struct DriftingUpdate : sk::rules::AdafactorUpdate<A> {
    template <std::size_t Pass, class Numbers>
    void settle(const Numbers& numbers) const {
        sk::rules::AdafactorUpdate<A>::template settle<Pass>(numbers);
        if (drifts) { numbers.kept[0][0] += A(1) / 1024; }
    }
};
struct DriftingRule : sk::rules::AdafactorRule {
    template <class A>
    using Update = DriftingUpdate<A>;
    template <class A>
    static Update<A> update(const Progress& progress, const Options& given, double scale) {
        return {sk::rules::AdafactorRule::update<A>(progress, given, scale)};
    }
};

}  // namespace

TEST_CASE("a rank whose kept numbers are others than the rest's is found") {
    for (const bool drifting : {false, true}) {
        const std::string message = thrown_message<sk::ReplicaError>([&] {
            sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
                drifts = drifting && rank.rank() == 1;
                sk::Sharded<List, sk::FullShard> layer{rank, "layer", {{"weight", {4, 3}}}};
                layer.initialize([](auto, auto, auto i) { return first_of("weight", i); });
                sk::Model model{layer};
                sk::rules::FactoredOptimizer<DriftingRule> optimizer{model};
                sk::Accumulation accumulation{model};
                auto gradients = accumulation.gradients(layer);
                for (std::size_t i = 0; i < 12; ++i) { gradients.view(0).data()[i] = gradient_of("weight", 0, i); }
                accumulation.add(std::move(gradients));
                optimizer.step(std::move(accumulation));
                sk::verify_replicas(model, optimizer);
                if (!drifting) { throw sk::ReplicaError({}, "equal"); }
            });
        });
        CAPTURE(message);
        CHECK((drifting ? message.find("'layer' row_var of 'weight' differs on rank 1 from the majority")
                        : message.find("equal")) != std::string::npos);
    }
}

TEST_CASE("ranks that clip their steps otherwise are told so") {
    const std::string message = thrown_message<sk::CommError>([] {
        sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
            Layer layer{rank, "layer", list(), {sk::DynamicPolicy(sk::FullShard{})}};
            sk::Model model{layer};
            const double threshold = rank.rank() == 0 ? 1 : 2;
            sk::Adafactor optimizer{model, {.clip_threshold = threshold}};
            for (int step = 0; step < 2; ++step) {
                sk::Accumulation accumulation{model};
                accumulation.add_zero(layer);
                optimizer.step(std::move(accumulation));
            }
        });
    });
    CAPTURE(message);
    CHECK(message.find("clip_threshold") != std::string::npos);
}

TEST_CASE("what Adafactor cannot do is refused, with what was given and what was expected") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        Training training(rank, sk::DynamicPolicy(sk::NoShard{}));
        CHECK(thrown_message<std::invalid_argument>([&] {
                  training.optimizer.set_options({.clip_threshold = 0});
              }).find("Adafactor: clip_threshold is 0") != std::string::npos);
        sk::Accumulation accumulation{training.model, 1};
        CHECK(thrown_message<sk::UsageError>([&] {
                  training.optimizer.step_in_backward(accumulation);
              }).find("adds numbers of all groups over the ranks at once") != std::string::npos);
    });
}

}  // namespace adafactor_test
