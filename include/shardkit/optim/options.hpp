// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

// What optimizers are told: hyper-parameters, and for which parameters they are others.

namespace shardkit {

namespace rules {
struct AdamWRule;
struct AmsgradRule;
struct SgdRule;
struct LionRule;
}  // namespace rules

/// AdamW's hyper-parameters with PyTorch's defaults.
struct AdamWOptions {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 1e-2;

    friend constexpr bool operator==(const AdamWOptions&, const AdamWOptions&) noexcept = default;
};

/// Which direction SGD follows: the gradient, its running sum, or the sum looked at one step ahead.
enum class Momentum : std::uint8_t { none, classical, nesterov };

/// SGD's hyper-parameters. `momentum` is the running sum's factor, 0 under Momentum::none.
struct SgdOptions {
    double learning_rate = 1e-3;
    Momentum rule = Momentum::none;
    double momentum = 0;
    double weight_decay = 0;

    friend constexpr bool operator==(const SgdOptions&, const SgdOptions&) noexcept = default;
};

/// Lion's hyper-parameters with the defaults of its authors' code (google/automl, lion). The paper advises a learning
/// rate 3 to 10 times smaller than AdamW's, and a weight decay as much larger.
struct LionOptions {
    double learning_rate = 1e-4;
    double beta1 = 0.9;
    double beta2 = 0.99;
    double weight_decay = 0;

    friend constexpr bool operator==(const LionOptions&, const LionOptions&) noexcept = default;
};

/// Which optimizer updates the parameters of a ParamGroup.
enum class UpdatedBy : std::uint8_t {
    own,     ///< the one that the group is given to
    another  ///< another one of a CombinedOptimizer
};

/// A function of the user's that says which parameters are meant: f(path of the group, name of the parameter) ->
/// bool. A std::function of these alone, whose header is a fifth of what a trainer's file
/// reads.
class ParameterFilter {
  public:
    ParameterFilter() noexcept = default;
    template <class F>
    requires(!std::same_as<F, ParameterFilter> &&
             std::is_invocable_r_v<bool, const F&, std::string_view, std::string_view>)
        ParameterFilter(F meant) {  // NOLINT(google-explicit-constructor): as a std::function
        if constexpr (requires { meant == nullptr; }) {
            if (meant == nullptr) { return; }
        }
        meant_ = new FunctionOf<F>(std::move(meant));
    }
    ParameterFilter(const ParameterFilter& other)
        : meant_(other.meant_ == nullptr ? nullptr : other.meant_->copy()) {}
    ParameterFilter(ParameterFilter&& other) noexcept : meant_(std::exchange(other.meant_, nullptr)) {}
    ParameterFilter& operator=(ParameterFilter other) noexcept {
        std::swap(meant_, other.meant_);
        return *this;
    }
    ~ParameterFilter() { delete meant_; }

    explicit operator bool() const noexcept { return meant_ != nullptr; }
    /// @pre it has a function
    bool operator()(std::string_view path, std::string_view parameter) const { return (*meant_)(path, parameter); }

  private:
    struct Function {
        Function() = default;
        Function(Function&&) = delete;
        virtual ~Function() = default;
        virtual bool operator()(std::string_view path, std::string_view parameter) const = 0;
        virtual Function* copy() const = 0;
    };
    template <class F>
    struct FunctionOf final : Function {
        explicit FunctionOf(F given) : f(std::move(given)) {}
        bool operator()(std::string_view path, std::string_view parameter) const override {
            return f(path, parameter);
        }
        Function* copy() const override { return new FunctionOf(f); }
        F f;
    };

    const Function* meant_ = nullptr;
};

/// Hyper-parameters of their own for some parameters; the first group that matches a parameter decides. What is given
/// replaces the optimizer's member of that name; an optimizer without such a member refuses it.
///     {.matches = [](auto, auto name) { return name == "bias"; }, .weight_decay = 0}
struct ParamGroup {
    ParameterFilter matches;
    double learning_rate_scale = 1;  ///< multiplies the optimizer's learning rate
    std::optional<double> weight_decay{};
    std::optional<double> beta1{};
    std::optional<double> beta2{};
    std::optional<double> epsilon{};
    std::optional<double> momentum{};
    UpdatedBy updated_by = UpdatedBy::own;
};

namespace detail {

class RuleFunctions;

/// An optimizer's options without their type: bytes, but for those that each rule has.
struct AnyOptions {
    static constexpr std::size_t most_bytes = 192;
    template <class Options>
    static constexpr bool fits = std::is_trivially_copyable_v<Options>&& std::is_default_constructible_v<Options> &&
                                 sizeof(Options) <= most_bytes && alignof(Options) <= 16;

    const RuleFunctions* rule = nullptr;  ///< null where another one knows it
    double learning_rate = 0;
    double weight_decay = 0;
    alignas(16) std::byte bytes[most_bytes]{};

    AnyOptions() = default;
    template <class Options>
    AnyOptions(const RuleFunctions* of, const Options& options)
        : rule(of), learning_rate(options.learning_rate), weight_decay(options.weight_decay) {
        static_assert(fits<Options>);
        std::memcpy(bytes, &options, sizeof(Options));
    }
    AnyOptions(const RuleFunctions* /*of*/, const AnyOptions& options) : AnyOptions(options) {}
    template <class Options>
    constexpr Options as() const {
        if constexpr (std::is_same_v<Options, AnyOptions>) {
            return *this;
        } else {
            Options options;
            std::memcpy(static_cast<void*>(&options), bytes, sizeof(Options));
            options.learning_rate = static_cast<decltype(options.learning_rate)>(learning_rate);
            options.weight_decay = static_cast<decltype(options.weight_decay)>(weight_decay);
            return options;
        }
    }
};

}  // namespace detail

}  // namespace shardkit
