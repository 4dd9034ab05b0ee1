// SPDX-License-Identifier: Apache-2.0
// Optimizers of the trainer's own in both forms, with no state, one or two as options say, of whole matrices and with
// sums over whole parameters: the same bits for each precision and with parameter groups, the same files of a
// checkpoint, resumed on another mesh, and the same refusals.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/adafactor.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/muon.hpp>
#include <shardkit/rules.hpp>
#include <shardkit/shardkit.hpp>

#include "../row_rule.hpp"
#include "../temporary_folder.hpp"

namespace sk = shardkit;

namespace {

struct OwnOptions {
    double learning_rate = 0.125;
    double weight_decay = 0;
    double momentum = 0.5;
    int states = 2;
};

template <class A>
struct OwnUpdate {
    sk::rules::Factor<A> gradient_scale;
    A learning_rate, weight_decay, momentum;

    template <class V>
    constexpr void operator()(V& parameter, V gradient) const {
        parameter = parameter - learning_rate * (gradient_scale * gradient + weight_decay * parameter);
    }
    template <class V>
    constexpr void operator()(V& parameter, V& mean, V gradient) const {
        mean = momentum * mean + gradient_scale * gradient;
        parameter = parameter - learning_rate * (mean + weight_decay * parameter);
    }
    template <class V>
    constexpr void operator()(V& parameter, V& mean, V& sum, V gradient) const {
        using sk::rules::select;
        using sk::rules::square_root;
        const V g = gradient_scale * gradient;
        mean = momentum * mean + g;
        sum = sum + g * g;
        const V step = mean / (square_root(sum) + A(1));
        parameter = parameter - learning_rate * select(step > A(0), step, weight_decay * parameter);
    }
};

struct OwnProgress {
    std::uint64_t steps = 0;
    double momentum_power = 1;
};

struct OwnRule {
    using Options = OwnOptions;
    using Progress = OwnProgress;
    static constexpr std::array<sk::rules::ProgressProduct<Progress>, 1> products{
        {{"momentum_power", &Progress::momentum_power}}};
    static constexpr void advance(Progress& progress, const Options& options) {
        ++progress.steps;
        progress.momentum_power *= options.momentum;
    }
    static constexpr std::string_view name = "Own";
    static constexpr std::array<sk::rules::OptionRange<Options>, 2> ranges{
        {{"learning_rate", &Options::learning_rate, sk::rules::not_negative},
         {"momentum", &Options::momentum, sk::rules::fraction}}};
    static constexpr std::array<std::string_view, 2> state_names{"mean", "sum"};
    static constexpr std::size_t state_count(const Options& options) {
        return static_cast<std::size_t>(options.states);
    }
    template <class A>
    using Update = OwnUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& progress, const Options& o, double scale) {
        const double rate = o.learning_rate * (1 - progress.momentum_power);
        return {sk::rules::Factor<A>(scale), A(rate) / static_cast<A>(progress.steps), A(o.weight_decay),
                A(o.momentum)};
    }
};

using Own = sk::rules::RuleOptimizer<OwnRule>;

/// Each row over the root of a mean of its squares, with as much of it as the largest root of all rows allows.
template <class A>
struct ScaledUpdate {
    sk::rules::Factor<double> gradient_scale;
    double learning_rate;

    template <std::size_t Sum>
    constexpr double term(const auto& element, const auto& numbers) const {
        const double one = gradient_scale * static_cast<double>(element.gradient);
        return Sum == 0 ? one * one : one * one / numbers.sums[0][element.row];
    }
    template <std::size_t Pass>
    constexpr void settle(const auto& numbers) const {
        const std::size_t columns = numbers.extents.matrices * numbers.extents.columns;
        for (std::size_t row = 0; Pass == 0 && row < numbers.extents.rows; ++row) {
            A& kept = numbers.kept[0][row];
            kept = static_cast<A>((static_cast<double>(kept) + numbers.sums[0][row]) / 2);
            numbers.sums[0][row] = static_cast<double>(kept);
        }
        double largest = 1;
        for (std::size_t column = 0; Pass == 1 && column < columns; ++column) {
            if (numbers.sums[1][column] > largest) { largest = numbers.sums[1][column]; }
        }
        if (Pass == 1) { *numbers.kept[1] = static_cast<A>(largest); }
    }
    constexpr A direction(const auto& element, const auto& numbers) const {
        const double one = gradient_scale * static_cast<double>(element.gradient);
        return static_cast<A>(one / (numbers.sums[0][element.row] * static_cast<double>(*numbers.kept[1])));
    }
    template <class V>
    constexpr void operator()(V& parameter, V& mean, V direction) const {
        mean = A(0.5) * mean + direction;
        parameter = parameter - A(learning_rate) * mean;
    }
};

struct ScaledRule : sk::rules::CountsSteps {
    using Options = row_rule::RowOptions;
    static constexpr std::string_view name = "Scaled";
    static constexpr std::array<sk::rules::OptionRange<Options>, 1> ranges{
        {{"learning_rate", &Options::learning_rate, sk::rules::not_negative}}};
    static constexpr std::array<std::string_view, 1> state_names{"mean"};
    static constexpr std::array<sk::rules::KeptState, 2> kept{
        {{"squares", sk::rules::Over::rows}, {"largest", sk::rules::Over::whole}}};
    static constexpr std::array<sk::rules::PassSum, 2> sums{
        {{0, sk::rules::Over::rows}, {1, sk::rules::Over::columns}}};
    static constexpr std::size_t state_count(const Options&) { return 1; }
    template <class A>
    using Update = ScaledUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress&, const Options& o, double scale) {
        return {sk::rules::Factor<double>(scale), o.learning_rate};
    }
};

template <class E>
struct Weight : sk::Param<"weight", E, 13, 7> {};
template <class E>
struct Bias : sk::Param<"bias", E, 13> {};

/// A number from -1 to 1 that any element type has.
double number(std::size_t i, std::size_t salt) {
    return static_cast<double>((i * 37 + salt * 101 + 11) % 257) / 128 - 1;
}

template <class E>
void train(std::string_view name, int states, sk::MasterWeights masters = sk::MasterWeights::kept) {
    sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
        using Group = sk::Params<Weight<E>, Bias<E>>;
        sk::Sharded<Group, sk::FullShard> layer{rank, "layer", {}, {.master = masters}};
        layer.initialize([](auto, auto parameter, std::uint64_t i) { return number(i, parameter.size()); });
        sk::Model model{layer};
        const auto is_bias = [](auto, auto parameter) { return parameter == "bias"; };
        Own optimizer{model,
                      {.weight_decay = 0.25, .states = states},
                      {{.matches = is_bias, .learning_rate_scale = 0.5, .weight_decay = 0, .momentum = 0.25}}};
        for (std::size_t step = 0; step < 4; ++step) {
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            std::size_t i = 0;
            const auto add = [&](auto values) {
                for (auto& value : values) {
                    value = static_cast<E>(static_cast<float>(number(i++, 10 * step + rank.rank())));
                }
            };
            add(gradients[Weight<E>{}]);
            add(gradients[Bias<E>{}]);
            accumulation.add(std::move(gradients));
            if (step == 2) {
                auto options = optimizer.options();
                options.momentum = 0.75;
                optimizer.set_options(options);
                optimizer.set_learning_rate(0.25);
            }
            optimizer.step(std::move(accumulation), {.max_norm = 2.0});
        }
        std::vector<double> values(13 * 7);
        layer.read_full(Weight<E>{}, values);
        std::uint64_t hash = 0xcbf29ce484222325ULL;
        for (const double value : values) { hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 0x100000001b3ULL; }
        if (rank.rank() == 0) {
            std::printf("%s, %d states: %016llx after %llu steps, %zu shards, learning rate %g\n", name.data(),
                        states, static_cast<unsigned long long>(hash),
                        static_cast<unsigned long long>(optimizer.steps(layer)), optimizer.shards().size(),
                        optimizer.learning_rate());
        }
    });
}

std::uint64_t hash_of(std::string_view bytes) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const char byte : bytes) { hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL; }
    return hash;
}

/// Two steps, a save, and two more from it on a smaller mesh. `make`: (model) -> a pointer to its optimizer
template <class E, class Make>
void resume(std::string_view name, const Make& make) {
    const temporary_folder::Folder folder;
    const auto run = [&](std::size_t ranks, std::size_t first, const std::string& from, const std::string& to) {
        sk::threads::run(sk::DeviceMesh{ranks}, [&](auto& rank) {
            sk::Sharded<Weight<E>, sk::FullShard> layer{rank, "layer"};
            layer.initialize([](auto, auto, std::uint64_t i) { return number(i, 3); });
            sk::Model model{layer};
            const auto optimizer = make(model);
            const sk::checkpoint::State state{model, *optimizer};
            if (!from.empty()) { sk::checkpoint::load(rank, from + "/step-00000001", state); }
            for (std::size_t step = first; step < first + 2; ++step) {
                sk::Accumulation accumulation{model};
                auto gradients = accumulation.gradients(layer);
                std::size_t i = 0;
                for (auto& value : gradients[Weight<E>{}]) {
                    value = static_cast<E>(static_cast<float>(number(i++, 10 * step)));
                }
                accumulation.add(std::move(gradients));
                optimizer->step(std::move(accumulation));
            }
            sk::checkpoint::save(rank, to, 1, state);
        });
        for (const auto& [file, bytes] : temporary_folder::contents(to)) {
            std::printf("%s, %zu ranks, %s: %016llx\n", name.data(), ranks, file.c_str(),
                        static_cast<unsigned long long>(hash_of(bytes)));
        }
    };
    run(3, 0, "", folder.file("begun"));
    run(2, 2, folder.file("begun"), folder.file("resumed"));
}
template <class E>
void resume_all(const std::string& element) {
    resume<E>(element + " in rows", [](const sk::Model& model) {
        return std::make_unique<sk::rules::MatrixOptimizer<row_rule::RowRule>>(model, sk::HostProducts{},
                                                                               row_rule::RowOptions{});
    });
    resume<E>(element + " scaled", [](const sk::Model& model) {
        return std::make_unique<sk::rules::FactoredOptimizer<ScaledRule>>(model);
    });
    resume<E>(element + " with Adafactor",
              [](const sk::Model& model) { return std::make_unique<sk::Adafactor>(model); });
}

void refuse(const char* what, OwnOptions options, std::vector<sk::ParamGroup> groups) {
    try {
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            sk::Sharded<Weight<float>, sk::FullShard> layer{rank, "layer"};
            sk::Model model{layer};
            Own optimizer{model, options, groups, sk::SourceLocation{}};
        });
        std::printf("%s: taken\n", what);
    } catch (const std::exception& error) { std::printf("%s: %s\n", what, error.what()); }
}

}  // namespace

int main() {
    for (const int states : {0, 1, 2}) {
        train<float>("fp32", states);
        train<double>("fp64", states);
        train<sk::bf16>("bf16", states);
        train<sk::bf16>("bf16 without masters", states, sk::MasterWeights::none);
    }
    resume_all<float>("fp32");
    resume_all<double>("fp64");
    resume_all<sk::bf16>("bf16");
    refuse("a rate below zero", {.learning_rate = -1}, {});
    refuse("a group's momentum", {}, {{.matches = [](auto, auto) { return true; }, .momentum = 2.0}});
    refuse("a group's beta", {}, {{.matches = [](auto, auto) { return true; }, .beta1 = 0.5}});
}
