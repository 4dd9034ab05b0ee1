// SPDX-License-Identifier: Apache-2.0
#include <shardkit/muon/muon.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/learning_rate.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "temporary_folder.hpp"
#include "test_size.hpp"
#include "unit/optim/golden.hpp"
#include "unit/thrown_message.hpp"

namespace muon_test {

namespace sk = shardkit;

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

const sk::DynamicPolicy policies[] = {
    sk::DynamicPolicy(sk::NoShard{}),          sk::DynamicPolicy(sk::ShardOptimizer{}),
    sk::DynamicPolicy(sk::ShardGradOp{}),      sk::DynamicPolicy(sk::FullShard{}),
    sk::DynamicPolicy(sk::HybridShard<2>{}),   sk::DynamicPolicy(sk::HybridOptimizer<2>{}),
    sk::DynamicPolicy(sk::SecondaryShard<2>{})};

constexpr sk::ParameterAttributes split(std::size_t dimension) {
    return {.tp = {sk::TpPlacement::Kind::split, dimension}};
}

/// Two blocks of matrices, tall, wide and packed, and what is not one: an embedding, biases, a frozen matrix.
struct Tensor {
    std::string name;
    std::vector<std::size_t> extents;
    sk::ParameterAttributes attributes{};

    std::size_t numel() const {
        std::size_t product = 1;
        for (const std::size_t extent : extents) { product *= extent; }
        return product;
    }
};
const std::vector<Tensor> tensors{{"packed", {12, 5}, split(0)},        {"bias", {7}},
                                  {"down", {4, 10}, split(1)},          {"square", {6, 6}},
                                  {"table", {9, 4}, {.matrix = false}}, {"fixed", {3, 3}, {.frozen = true}}};

template <class T>
sk::TensorList<T> tensor_list() {
    std::vector<sk::NamedTensor> list;
    for (const Tensor& tensor : tensors) { list.emplace_back(tensor.name, tensor.extents, tensor.attributes); }
    return sk::TensorList<T>(std::move(list));
}

double noise(std::uint64_t i) { return std::sin(static_cast<double>(i * i % 1009) + 0.5); }

struct Choice {
    sk::MuonOptions options{.learning_rate = 0.05};
    sk::Matrices matrices{};
    std::vector<sk::ParamGroup> groups{};
    double max_norm = sk::unlimited;
    bool skips = false;  // the second block in the second step
    bool scales = false;
    std::optional<sk::StochasticRounding> rounding{};
    sk::MasterWeights master = sk::MasterWeights::kept;
};

/// Two groups and a Muon of both, on one rank of any mesh.
template <class Precision>
struct Trainer {
    using T = typename Precision::Gather;
    using Layer = sk::Sharded<sk::TensorList<T>, sk::DynamicPolicy, Precision>;
    sk::MeshRank<Mesh>& rank;
    Choice choice;
    Layer first, second;
    sk::Model model{first, second};
    sk::Muon optimizer;
    sk::LossScale loss_scale;

    Trainer(sk::MeshRank<Mesh>& on, const sk::DynamicPolicy& policy, Choice chosen = {})
        : rank(on),
          choice(std::move(chosen)),
          first(on, "blocks.0", tensor_list<T>(), layer_options(policy)),
          second(on, "blocks.1", tensor_list<T>(), layer_options(policy)),
          optimizer(model, choice.options, {.learning_rate = 1e-3}, choice.matrices, choice.groups),
          loss_scale(on, {.initial = 1024}) {
        model.initialize([](auto path, auto name, auto i) {
            return noise(i + 31 * name.size() + static_cast<std::uint64_t>(path.back()));
        });
    }

    auto layer_options(const sk::DynamicPolicy& policy) const {
        sk::ShardedOptions<sk::TensorList<T>, sk::DynamicPolicy> options{policy, {}, {}};
        options.stochastic_rounding = choice.rounding;
        options.master = choice.master;
        if (choice.rounding) { options.master = sk::MasterWeights::none; }
        return options;
    }
    /// The same gradients whatever the mesh: the first data rank has all, the others zeros.
    void add(sk::Accumulation& accumulation, Layer& layer, std::uint64_t seed, double factor) {
        auto gradients = accumulation.gradients(layer);
        const auto& grid = rank.grid();
        if (grid.coordinate("dp", rank.rank()) == 0 && grid.coordinate("cp", rank.rank()) == 0) {
            for (const Tensor& tensor : tensors) {
                if (tensor.attributes.frozen) { continue; }
                sk::TensorShape shape{tensor.extents.size()};
                std::copy(tensor.extents.begin(), tensor.extents.end(), shape.extents.begin());
                sk::TensorPart part(shape);
                if (tensor.attributes.tp.kind == sk::TpPlacement::Kind::split) {
                    part = sk::TensorPart(shape, tensor.attributes.tp.dimension, grid.extent("tp"),
                                          grid.coordinate("tp", rank.rank()));
                }
                auto view = gradients.view(tensor.name);
                for (std::size_t i = 0; i < view.size(); ++i) {
                    view[i] = static_cast<T>(static_cast<float>(factor * noise(part.whole_index(i) + seed)));
                }
            }
        }
        accumulation.add(std::move(gradients));
    }
    void step(std::uint64_t number, double factor = 1) {
        sk::Accumulation accumulation{model};
        add(accumulation, first, 1000 * number, factor);
        if (choice.skips && number == 1) {
            accumulation.skip(second);
        } else {
            add(accumulation, second, 1000 * number + 500, factor);
        }
        sk::StepOptions options{.divisor = sk::sum, .max_norm = choice.max_norm};
        if (choice.scales) { options.loss_scale = &loss_scale; }
        optimizer.step(std::move(accumulation), options);
    }
    std::vector<float> values() {
        std::vector<float> all;
        for (Layer* layer : {&first, &second}) {
            for (const Tensor& tensor : tensors) {
                std::vector<float> whole(tensor.numel());
                layer->read_full(tensor.name, whole);
                all.insert(all.end(), whole.begin(), whole.end());
            }
        }
        return all;
    }
};

template <class Precision>
std::vector<float> trained(const Mesh& mesh, const sk::DynamicPolicy& policy, const Choice& choice = {}) {
    std::vector<float> values;
    sk::threads::run(mesh, [&](auto& rank) {
        Trainer<Precision> trainer(rank, policy, choice);
        for (std::uint64_t step = 0; step < 3; ++step) { trainer.step(step); }
        const std::vector<float> own = trainer.values();
        if (rank.rank() == 0) { values = own; }
    });
    return values;
}

}  // namespace

TEST_CASE_TEMPLATE("steps are torch.optim.Muon's, on one rank and on three", A, float, double) {
    const auto cases = sk::test::golden_cases<A>("muon", sk::test::read_golden("muon_golden.json"));
    CHECK(cases.size() == 16);
    for (const nlohmann::json& golden : cases) {
        CAPTURE(golden.at("name").get<std::string>());
        CAPTURE(golden.at("shape").get<std::string>());
        const auto rows = golden.at("rows").get<std::size_t>();
        const auto columns = golden.at("columns").get<std::size_t>();
        const nlohmann::json& o = golden.at("options");
        const sk::MuonOptions options{
            .learning_rate = o.at("learning_rate").get<double>(),
            .rule = o.at("nesterov").get<bool>() ? sk::Momentum::nesterov : sk::Momentum::classical,
            .momentum = o.at("momentum").get<double>(),
            .weight_decay = o.at("weight_decay").get<double>(),
            .scale =
                o.at("scale").get<std::string>() == "original" ? sk::MuonScale::jordan : sk::MuonScale::moonlight};
        for (const std::size_t ranks : {std::size_t{1}, std::size_t{3}}) {
            sk::threads::run(Mesh(ranks, 1, 1), [&](auto& rank) {
                using Precision = sk::DefaultPrecision<A>;
                sk::Sharded<sk::TensorList<A>, sk::FullShard, Precision> layer(
                    rank, "layer", sk::TensorList<A>{{"weight", std::vector{rows, columns}}});
                const auto initial = golden.at("initial").get<std::vector<A>>();
                layer.load("weight", std::span<const A>(initial));
                sk::Model model{layer};
                sk::Muon optimizer{model, options};
                for (const nlohmann::json& step : golden.at("steps")) {
                    sk::Accumulation accumulation{model};
                    auto gradients = accumulation.gradients(layer);
                    const auto gradient = step.at("gradient").get<std::vector<A>>();
                    std::copy(gradient.begin(), gradient.end(), gradients.view("weight").data());
                    accumulation.add(std::move(gradients));
                    optimizer.step(std::move(accumulation));
                    std::vector<A> values(rows * columns);
                    layer.read_full("weight", values);
                    const auto expected = step.at("parameter").get<std::vector<A>>();
                    A largest = 0;
                    for (std::size_t i = 0; i < values.size(); ++i) {
                        largest = std::max(largest, std::abs(values[i] - expected[i]));
                    }
                    // A rounding error of the orthogonal matrix, times the step; and some of the parameter's own.
                    const auto moved = static_cast<A>(options.learning_rate);
                    CHECK(largest <= (2000 * moved + 16) * std::numeric_limits<A>::epsilon());
                }
            });
        }
    }
}

TEST_CASE("the same gradients give the same bits on 1, 2, 3, 4 and 8 ranks, under five policies, with tp and cp") {
    const sk::Matrices heads{.block_rows = [](auto, auto name) { return std::size_t{name == "packed" ? 2U : 0U}; }};
    const Choice choices[] = {{.options = {.learning_rate = 0.05}, .skips = true},
                              {.options = {.rule = sk::Momentum::classical, .scale = sk::MuonScale::moonlight},
                               .matrices = heads,
                               .groups = {{.matches = [](auto, auto name) { return name == "down"; },
                                           .learning_rate_scale = 2,
                                           .weight_decay = 0.5,
                                           .momentum = 0.5}},
                               .max_norm = 0.5,
                               .scales = true}};
    const Mesh meshes[] = {Mesh(2, 1, 1), Mesh(3, 1, 1), Mesh(4, 1, 1), Mesh(8, 1, 1),
                           Mesh(2, 2, 1), Mesh(1, 2, 2), Mesh(2, 2, 2)};
    for (const Choice& choice : choices) {
        const auto expected = trained<sk::DefaultPrecision<float>>(Mesh(1, 1, 1), policies[3], choice);
        for (const Mesh& mesh : meshes) {
            if (test_size::reduced() && (mesh.size() == 2 || mesh.size() == 8)) { continue; }
            for (const sk::DynamicPolicy& policy : policies) {
                if (mesh.dp() % policy.shard_group(mesh.dp()) != 0) { continue; }
                CAPTURE(mesh.describe());
                CAPTURE(std::string(policy.values().name));
                CHECK(trained<sk::DefaultPrecision<float>>(mesh, policy, choice) == expected);
            }
        }
    }
}

namespace {

/// One step of a model of one group: a Muon over tensors of these rows and five columns, or AdamW. `values`: of all.
std::vector<float> one_step(std::size_t tp, const std::vector<std::pair<std::string, std::size_t>>& rows,
                            const sk::Matrices& matrices, bool split_rows = false) {
    std::vector<float> values;
    sk::threads::run(Mesh(1, tp, 1), [&](auto& rank) {
        std::vector<sk::NamedTensor> list;
        const auto attributes = split_rows ? split(0) : sk::ParameterAttributes{};
        for (const auto& [name, number] : rows) {
            list.emplace_back(name, std::vector{number, std::size_t{5}}, attributes);
        }
        sk::Sharded<sk::TensorList<float>, sk::NoShard> layer(rank, "layer", sk::TensorList<float>(list));
        sk::Model model{layer};
        sk::Muon optimizer{model, {.learning_rate = 0.1}, {}, matrices};
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        std::size_t before = rows.size() == 1 ? gradients.view(0).size() * rank.rank() : 0;
        for (std::size_t p = 0; p < rows.size(); ++p) {
            for (float& g : gradients.view(p)) { g = static_cast<float>(noise(before++)); }
        }
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation));
        std::vector<float> own;
        for (const auto& [name, number] : rows) {
            std::vector<float> whole(number * 5);
            layer.read_full(name, whole);
            own.insert(own.end(), whole.begin(), whole.end());
        }
        if (rank.rank() == 0) { values = own; }
    });
    return values;
}

sk::Matrices blocks_of(std::size_t rows) {
    return {.block_rows = [rows](auto, auto) { return rows; }};
}

}  // namespace

TEST_CASE("blocks of rows are matrices by themselves, and so are parts of tp where that is asked for") {
    const auto apart = one_step(1, {{"q", 4}, {"k", 4}, {"v", 4}}, {});
    CHECK(one_step(1, {{"packed", 12}}, blocks_of(4)) == apart);
    CHECK(one_step(1, {{"packed", 12}}, {}) != apart);
    const auto halves = one_step(1, {{"packed", 12}}, blocks_of(6));
    CHECK(one_step(2, {{"packed", 12}}, {.tp = sk::TpMatrices::parts}, true) == halves);
    CHECK(one_step(2, {{"packed", 12}}, {}, true) == one_step(1, {{"packed", 12}}, {}));
}

namespace {

/// One step of torch.optim.Muon on a matrix, in double and in loops: its buffer begins as zero.
void torch_step(double* values, const std::vector<double>& gradient, std::size_t rows, std::size_t columns,
                const sk::MuonOptions& o) {
    using Matrix = std::vector<std::vector<double>>;
    const auto zeros = [](std::size_t m, std::size_t n) { return Matrix(m, std::vector<double>(n)); };
    const auto times = [&](const Matrix& a, const Matrix& b) {
        Matrix c = zeros(a.size(), b[0].size());
        for (std::size_t i = 0; i < a.size(); ++i) {
            for (std::size_t k = 0; k < b.size(); ++k) {
                for (std::size_t j = 0; j < b[0].size(); ++j) { c[i][j] += a[i][k] * b[k][j]; }
            }
        }
        return c;
    };
    const auto turned = [&](const Matrix& a) {
        Matrix b = zeros(a[0].size(), a.size());
        for (std::size_t i = 0; i < a.size(); ++i) {
            for (std::size_t j = 0; j < a[0].size(); ++j) { b[j][i] = a[i][j]; }
        }
        return b;
    };
    Matrix x = zeros(rows, columns);
    double squares = 0;
    for (std::size_t i = 0; i < rows * columns; ++i) {
        const double buffer = (1 - o.momentum) * gradient[i];
        x[i / columns][i % columns] = (1 - o.momentum) * gradient[i] + o.momentum * buffer;
        squares += std::pow(x[i / columns][i % columns], 2);
    }
    if (rows > columns) { x = turned(x); }
    for (auto& row : x) {
        for (double& each : row) { each /= std::max(std::sqrt(squares), o.epsilon); }
    }
    for (int step = 0; step < 5; ++step) {
        const Matrix a = times(x, turned(x));
        Matrix polynomial = times(a, a);
        for (std::size_t i = 0; i < a.size(); ++i) {
            for (std::size_t j = 0; j < a.size(); ++j) {
                polynomial[i][j] = -4.7750 * a[i][j] + 2.0315 * polynomial[i][j];
            }
        }
        const Matrix added = times(polynomial, x);
        for (std::size_t i = 0; i < x.size(); ++i) {
            for (std::size_t j = 0; j < x[0].size(); ++j) { x[i][j] = 3.4445 * x[i][j] + added[i][j]; }
        }
    }
    if (rows > columns) { x = turned(x); }
    const double scale = std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
    for (std::size_t i = 0; i < rows * columns; ++i) {
        values[i] = values[i] * (1 - o.learning_rate * o.weight_decay) -
                    o.learning_rate * scale * x[i / columns][i % columns];
    }
}

struct Stack {
    std::string name;
    std::vector<std::size_t> extents;
    sk::MatrixUnits units;
    std::size_t rows, columns;  // of one matrix
    std::size_t split;          // over tp
};
const std::vector<Stack> stacks{{"experts", {4, 5, 3}, sk::MatrixUnits::last_two, 5, 3, 0},
                                {"wide", {3, 4, 6}, sk::MatrixUnits::last_two, 4, 6, 1},
                                {"deep", {2, 3, 4, 6}, sk::MatrixUnits::last_two, 4, 6, 3},
                                {"kernel", {6, 2, 3, 2}, sk::MatrixUnits::flattened, 6, 12, 1}};
std::size_t numel_of(const Stack& stack) {
    return std::accumulate(stack.extents.begin(), stack.extents.end(), std::size_t{1}, std::multiplies<>());
}
double gradient_of(const Stack& stack, std::size_t i) { return noise(i + 100 * stack.name.size()); }
constexpr double first_value(std::size_t i) { return 0.01 * static_cast<double>(i); }
const sk::MuonOptions of_stacks{.learning_rate = 0.5, .weight_decay = 0.25};

}  // namespace

TEST_CASE(
    "tensors of three and four dimensions: each slice is a matrix, or the whole one with its first dimension's "
    "rows") {
    std::vector<std::vector<double>> expected;
    for (const Stack& stack : stacks) {
        std::vector<double>& values = expected.emplace_back(numel_of(stack));
        for (std::size_t i = 0; i < values.size(); ++i) { values[i] = first_value(i); }
        for (std::size_t at = 0; at < values.size(); at += stack.rows * stack.columns) {
            std::vector<double> gradient(stack.rows * stack.columns);
            for (std::size_t i = 0; i < gradient.size(); ++i) { gradient[i] = gradient_of(stack, at + i); }
            torch_step(values.data() + at, gradient, stack.rows, stack.columns, of_stacks);
        }
    }
    const sk::Matrices matrices{.units = [](auto, auto name) {
        for (const Stack& stack : stacks) {
            if (stack.name == name) { return stack.units; }
        }
        return sk::MatrixUnits::none;
    }};
    for (const Mesh& mesh : {Mesh(1, 1, 1), Mesh(3, 1, 1), Mesh(2, 2, 1), Mesh(4, 1, 2)}) {
        for (const sk::DynamicPolicy& policy : policies) {
            if (mesh.dp() % policy.shard_group(mesh.dp()) != 0) { continue; }
            CAPTURE(mesh.describe());
            CAPTURE(std::string(policy.values().name));
            sk::threads::run(mesh, [&](auto& rank) {
                using List = sk::TensorList<double>;
                std::vector<sk::NamedTensor> list{{"bias", std::vector<std::size_t>{6}}};
                for (const Stack& stack : stacks) {
                    list.emplace_back(stack.name, stack.extents, split(stack.split));
                }
                sk::Sharded<List, sk::DynamicPolicy, sk::DefaultPrecision<double>> layer(rank, "layer", List(list),
                                                                                         {policy});
                layer.initialize([](auto, auto, auto i) { return first_value(i); });
                sk::Model model{layer};
                sk::Muon optimizer{model, of_stacks, {}, matrices};
                sk::Accumulation accumulation{model};
                auto gradients = accumulation.gradients(layer);
                for (const Stack& stack : stacks) {
                    sk::TensorShape shape{stack.extents.size()};
                    std::copy(stack.extents.begin(), stack.extents.end(), shape.extents.begin());
                    const sk::TensorPart part(shape, stack.split, mesh.tp(),
                                              rank.grid().coordinate("tp", rank.rank()));
                    auto view = gradients.view(stack.name);
                    for (std::size_t i = 0; i < view.size(); ++i) {
                        view[i] = gradient_of(stack, part.whole_index(i));
                    }
                }
                accumulation.add(std::move(gradients));
                optimizer.step(std::move(accumulation));
                for (std::size_t s = 0; s < stacks.size(); ++s) {
                    std::vector<double> values(numel_of(stacks[s]));
                    layer.read_full(stacks[s].name, values);
                    double largest = 0;
                    for (std::size_t i = 0; i < values.size(); ++i) {
                        largest = std::max(largest, std::abs(values[i] - expected[s][i]));
                    }
                    CAPTURE(stacks[s].name);
                    CHECK(largest < 1e-12);
                }
            });
        }
    }
}

TEST_CASE("what is no matrix is AdamW's to the bit, and what is frozen stays") {
    sk::threads::run(Mesh(2, 1, 1), [](auto& rank) {
        using Precision = sk::DefaultPrecision<float>;
        Trainer<Precision> muon(rank, policies[3]);
        Trainer<Precision> other(rank, policies[3]);
        sk::AdamW adamw{other.model, {.learning_rate = 1e-3}};
        const std::vector<float> before = muon.values();
        for (std::uint64_t number = 0; number < 2; ++number) {
            muon.step(number);
            sk::Accumulation accumulation{other.model};
            other.add(accumulation, other.first, 1000 * number, 1);
            other.add(accumulation, other.second, 1000 * number + 500, 1);
            adamw.step(std::move(accumulation), {.divisor = sk::sum});
        }
        const std::vector<float> by_muon = muon.values();
        const std::vector<float> by_adamw = other.values();
        std::size_t at = 0;
        for (int block = 0; block < 2; ++block) {
            for (const Tensor& tensor : tensors) {
                const bool rest = tensor.name == "bias" || tensor.name == "table";
                for (std::size_t i = 0; i < tensor.numel(); ++i, ++at) {
                    if (tensor.attributes.frozen) {
                        CHECK(by_muon[at] == before[at]);
                    } else {
                        CHECK((by_muon[at] == by_adamw[at]) == rest);
                    }
                }
            }
        }
    });
}

TEST_CASE("a gradient that is not finite changes nothing under a loss scale, and without one makes its matrix NaN") {
    for (const std::size_t ranks : {std::size_t{1}, std::size_t{3}}) {
        sk::threads::run(Mesh(ranks, 1, 1), [](auto& rank) {
            using Precision = sk::DefaultPrecision<float>;
            Trainer<Precision> calm(rank, policies[3], {.scales = true});
            Trainer<Precision> shaken(rank, policies[3], {.scales = true});
            for (std::uint64_t number = 0; number < 3; ++number) {
                shaken.step(7, std::numeric_limits<double>::quiet_NaN());
                calm.step(number, 1024);
                // The scale was halved: a power of two, which changes no bits.
                shaken.step(number, shaken.loss_scale.value());
                CHECK(shaken.optimizer.steps(shaken.first) == number + 1);
                CHECK(shaken.values() == calm.values());
            }
            CHECK(shaken.loss_scale.value() == calm.loss_scale.value() / 8);
            Trainer<Precision> bare(rank, policies[3]);
            bare.step(0, std::numeric_limits<double>::infinity());
            CHECK(std::isnan(bare.values()[0]));
        });
    }
}

TEST_CASE(
    "16-bit parameters with masters, whole or split, and without, rounded stochastically, have the same bits on any "
    "mesh") {
    using Half = sk::DefaultPrecision<sk::bf16>;
    const auto expected = trained<Half>(Mesh(1, 1, 1), policies[3]);
    CHECK(trained<Half>(Mesh(3, 1, 1), policies[1]) == expected);
    CHECK(trained<Half>(Mesh(2, 2, 1), policies[4]) == expected);
    CHECK(trained<Half>(Mesh(3, 1, 1), policies[1], {.master = sk::MasterWeights::split}) == expected);
    const Choice rounds{.rounding = sk::StochasticRounding{17}};
    const auto rounded = trained<Half>(Mesh(1, 1, 1), policies[3], rounds);
    CHECK(rounded != expected);
    CHECK(trained<Half>(Mesh(3, 1, 1), policies[1], rounds) == rounded);
    CHECK(trained<Half>(Mesh(2, 2, 1), policies[4], rounds) == rounded);
}

TEST_CASE("a checkpoint goes on, on another mesh, to the bit; one of AdamW says what to do") {
    using Precision = sk::DefaultPrecision<float>;
    const temporary_folder::Folder folder;
    const auto expected = trained<Precision>(Mesh(1, 1, 1), policies[0]);
    sk::threads::run(Mesh(3, 1, 1), [&](auto& rank) {
        Trainer<Precision> trainer(rank, policies[3]);
        trainer.step(0);
        trainer.step(1);
        sk::checkpoint::save(rank, folder.file("muon"), 2, sk::checkpoint::State{trainer.model, trainer.optimizer});
        sk::AdamW adamw{trainer.model};
        sk::checkpoint::save(rank, folder.file("adamw"), 2, sk::checkpoint::State{trainer.model, adamw});
    });
    for (const Mesh& mesh : {Mesh(2, 2, 1), Mesh(1, 1, 1)}) {
        sk::threads::run(mesh, [&](auto& rank) {
            Trainer<Precision> trainer(rank, policies[mesh.dp() == 1 ? 0 : 2]);
            sk::checkpoint::load(rank, folder.file("muon/step-00000002"),
                                 sk::checkpoint::State{trainer.model, trainer.optimizer});
            CHECK(trainer.optimizer.steps(trainer.second) == 2);
            trainer.step(2);
            CHECK(trainer.values() == expected);

            const std::string refused = thrown_message<sk::FileError>([&] {
                sk::checkpoint::load(rank, folder.file("adamw/step-00000002"),
                                     sk::checkpoint::State{trainer.model, trainer.optimizer});
            });
            CHECK(has(refused,
                      "was saved with an optimizer that keeps exp_avg, exp_avg_sq, as AdamW, and is loaded into an "
                      "optimizer that keeps exp_avg, exp_avg_sq, momentum_buffer, as AdamW, Muon: "
                      "checkpoint::LoadOptions::states = false"));
            sk::checkpoint::load(rank, folder.file("adamw/step-00000002"),
                                 sk::checkpoint::State{trainer.model, trainer.optimizer}, {.states = false});
        });
    }
}

TEST_CASE(
    "what travels is each element to the owner and back, and memory is a slot of each batch, a matrix and what it "
    "works in") {
    // 48 elements: 32 on rank 0, which owns the matrix, and 16 on rank 1.
    sk::threads::run(Mesh(2, 1, 1), [](auto& rank) {
        sk::Sharded<sk::TensorList<float>, sk::FullShard> layer(rank, "layer",
                                                                sk::TensorList<float>{{"weight", {8, 6}}});
        sk::Model model{layer};
        sk::Muon optimizer{model};
        const std::size_t slots = 32 + 48;  // one batch
        const std::size_t works = 48 + (48 + 2 * 6 * 6);
        CHECK(optimizer.matrices().bytes_of_exchange() == 4 * (slots + (rank.rank() == 0 ? works : 0)));
        sk::Accumulation accumulation{model};
        accumulation.add_zero(layer);
        rank.traffic().clear();
        optimizer.step(std::move(accumulation));
        const auto moved = rank.traffic().total(sk::Verb::all_to_all_uneven);
        CHECK(moved.calls == 2);
        CHECK(moved.moved == sk::ByteCount(4 * 16));
        CHECK(rank.traffic().total(sk::Verb::broadcast).calls == 0);
    });
    // Under NoShard the owner gives the matrix to all, and its directions come from itself.
    sk::threads::run(Mesh(3, 1, 1), [](auto& rank) {
        sk::Sharded<sk::TensorList<float>, sk::NoShard> layer(rank, "layer",
                                                              sk::TensorList<float>{{"weight", {8, 6}}});
        sk::Model model{layer};
        sk::Muon optimizer{model};
        sk::Accumulation accumulation{model};
        accumulation.add_zero(layer);
        rank.traffic().clear();
        optimizer.step(std::move(accumulation));
        CHECK(rank.traffic().total(sk::Verb::all_to_all_uneven).moved == sk::ByteCount(0));
        CHECK(rank.traffic().total(sk::Verb::broadcast).moved == sk::ByteCount(rank.rank() == 0 ? 0 : 4 * 48));
    });
}

namespace {

struct Weight : sk::Param<"weight", float, 6, 4> {};
struct Tied : sk::Alias<"head", Weight> {};

/// A step of one matrix on two ranks; put(gradients) writes its gradients.
template <class Group, class Put>
std::vector<float> stepped(const Put& put) {
    std::vector<float> values(24);
    sk::threads::run(Mesh(2, 1, 1), [&](auto& rank) {
        sk::Sharded<Group, sk::FullShard> layer(rank, "layer");
        sk::Model model{layer};
        sk::Muon optimizer{model, {.learning_rate = 0.1}};
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        put(gradients);
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation));
        std::vector<float> whole(24);
        layer.read_full(Weight{}, whole);
        if (rank.rank() == 0) { values = whole; }
    });
    return values;
}

}  // namespace

TEST_CASE("a tied parameter is one matrix, of which both names' gradients are") {
    const auto once = stepped<sk::Params<Weight>>([](auto& gradients) {
        for (std::size_t i = 0; i < 24; ++i) {
            gradients[Weight{}][i] = static_cast<float>(noise(i) + noise(i + 50));
        }
    });
    const auto tied = stepped<sk::Params<Weight, Tied>>([](auto& gradients) {
        for (std::size_t i = 0; i < 24; ++i) {
            gradients[Tied{}][i] += static_cast<float>(noise(i) + noise(i + 50)) / 2;
        }
        for (std::size_t i = 0; i < 24; ++i) {
            gradients[Weight{}][i] += static_cast<float>(noise(i) + noise(i + 50)) / 2;
        }
    });
    CHECK(tied == once);
    CHECK(once[0] != 0);
}

TEST_CASE("the learning rate of the rest follows Muon's; options are those of the parts") {
    sk::threads::run(Mesh(1, 1, 1), [](auto& rank) {
        Trainer<sk::DefaultPrecision<float>> trainer(rank, policies[3]);
        CHECK(trainer.optimizer.learning_rate() == 0.05);
        trainer.optimizer.set_learning_rate(0.1);
        CHECK(trainer.optimizer.matrices().options().learning_rate == 0.1);
        CHECK(trainer.optimizer.rest().learning_rate() == 2e-3);
        trainer.optimizer.set_learning_rate(0);  // and both come back from there
        CHECK(trainer.optimizer.rest().learning_rate() == 0);
        trainer.optimizer.rest().set_learning_rate(4e-3);
        trainer.optimizer.set_learning_rate(0.013);
        CHECK(trainer.optimizer.learning_rate() == 0.013);
        CHECK(trainer.optimizer.rest().learning_rate() == 0.013 * (4e-3 / 0.05));
    });
}

TEST_CASE("two learning rates are two numbers that a schedule multiplies, from a warm-up's step 0 on") {
    sk::threads::run(Mesh(2, 1, 1), [](auto& rank) {
        Choice choice;
        choice.options.learning_rate = 0;
        choice.options.weight_decay = 0.5;
        Trainer<sk::DefaultPrecision<float>> trainer(rank, policies[3], choice);
        auto& optimizer = trainer.optimizer;
        const auto refused = [](auto& of, double rate) {
            return thrown_message<std::invalid_argument>([&] { of.set_learning_rate(rate); });
        };
        CHECK(
            has(refused(optimizer, 0.02),
                "Muon: set_learning_rate of 0.02 where its matrices were given a rate of 0 and AdamW one of 0.001"));
        CHECK(has(refused(optimizer, 0), "where its matrices were given a rate of 0"));
        optimizer.rest().set_learning_rate(0);
        CHECK(has(refused(optimizer, 0.02), "a rate of 0 and AdamW one of 0;"));
        CHECK(optimizer.matrices().learning_rate() == 0);

        optimizer.matrices().set_learning_rate(0.02);
        optimizer.rest().set_learning_rate(3e-4);
        constexpr sk::LearningRate schedule{.peak = 1, .warm_up = 10, .steps = 100};
        const auto before = trainer.values();
        optimizer.set_learning_rate_factor(schedule(0));
        trainer.step(0);
        CHECK(trainer.values() == before);
        for (const std::uint64_t step : {3U, 10U, 60U, 100U, 10U}) {
            optimizer.set_learning_rate_factor(schedule(step));
            CHECK(optimizer.learning_rate() == schedule(step) * 0.02);
            CHECK(optimizer.rest().learning_rate() == schedule(step) * 3e-4);
        }
        trainer.step(1);
        CHECK(trainer.values() != before);
        // A square matrix moves by the rate times a matrix whose singular values are about one; AdamW's first step of
        // a bias is about the rate.
        const std::size_t bias = 12 * 5;
        const float moved = std::abs(trainer.values()[bias] - before[bias]);
        CHECK(moved > 1e-4);
        CHECK(moved < 4e-4);
        for (const double wrong : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
            CHECK_THROWS_AS(optimizer.set_learning_rate_factor(wrong), std::invalid_argument);
        }
        CHECK(optimizer.learning_rate() == 0.02);
    });
}

TEST_CASE("what Muon cannot do is refused, by name") {
    sk::threads::run(Mesh(1, 1, 1), [](auto& rank) {
        using List = sk::TensorList<float>;
        sk::Sharded<List, sk::FullShard> layer(rank, "layer", List{{"weight", {6, 4}}, {"bias", {6}}});
        sk::Model model{layer};
        const auto refused = [&](const sk::MuonOptions& options, const sk::Matrices& matrices,
                                 const std::vector<sk::ParamGroup>& groups) {
            return thrown_message<std::invalid_argument>([&] {
                sk::Muon optimizer{model, options, {}, matrices, groups};
            });
        };
        const auto everything = [](auto, auto) { return true; };
        CHECK(
            has(refused({}, {.matches = everything}, {}), "'layer.bias' has the shape [6], expected two dimensions"));
        sk::Sharded<List, sk::FullShard> stacked(rank, "stacked", List{{"weight", {6, 4}}, {"experts", {2, 6, 4}}});
        sk::Model with_experts{stacked};
        const auto refused_stack = [&](const sk::Matrices& matrices) {
            return thrown_message<std::invalid_argument>([&] { sk::Muon optimizer{with_experts, {}, {}, matrices}; });
        };
        const std::string asks =
            "'stacked.experts' has the shape [2, 6, 4], expected Matrices::units, which say what of more than two "
            "dimensions is a matrix, or a parameter that is marked NoMatrix, which another optimizer updates (";
        CHECK(has(refused_stack({}), asks));
        CHECK(has(refused_stack({}), "muon_test.cpp:"));
        CHECK(has(refused_stack({.matches = everything}), asks));
        sk::Muon leaves{with_experts, {}, {}, {.matches = [](auto, auto name) { return name == "weight"; }}};
        sk::Matrices halves = blocks_of(3);
        halves.units = [](auto, auto) { return sk::MatrixUnits::last_two; };
        sk::Muon takes{with_experts, {}, {}, halves};
        halves.block_rows = [](auto, auto name) { return std::size_t{name == "experts" ? 12U : 0U}; };
        CHECK(has(refused_stack(halves),
                  "'stacked.experts': block_rows is 12, expected a number that divides its 6 rows"));
        CHECK(has(refused({}, blocks_of(4), {}),
                  "'layer.weight': block_rows is 4, expected a number that divides its 6"));
        CHECK(has(refused({}, {.matches = [](auto, auto) { return false; }}, {}), "Muon: no parameter is a matrix"));
        CHECK(has(refused({}, {}, {{.matches = everything, .beta2 = 0.9}}),
                  "Muon: a ParamGroup gives betas to 'layer.weight', which Muon updates"));
        CHECK(has(refused({}, {}, {{.matches = everything, .momentum = 0.9}}),
                  "Muon: a ParamGroup gives a momentum to 'layer.bias', which AdamW updates"));
        CHECK(has(refused({.rule = sk::Momentum::none}, {}, {}), "Muon: rule is Momentum::none"));
        CHECK(has(refused({.momentum = 1}, {}, {}), "Muon: momentum is 1"));
    });
    sk::threads::run(Mesh(2, 1, 1), [](auto& rank) {
        sk::Sharded<sk::TensorList<float>, sk::FullShard> layer(rank, "layer",
                                                                sk::TensorList<float>{{"weight", {6, 4}}});
        sk::Model model{layer};
        CHECK(has(thrown_message<std::invalid_argument>([&] {
                      sk::Muon optimizer{model, {}, {}, blocks_of(rank.rank() == 0 ? 3 : 2)};
                  }),
                  "rank 1 takes other matrices than rank 0"));
    });
}

}  // namespace muon_test
