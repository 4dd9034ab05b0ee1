// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <shardkit/core/element.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/spi/updates.hpp>

// What a FactoredRule's passes run: by index on a device, whole on the host. Both add in the same order.

namespace shardkit::detail {

/// One parameter in a step, as far as this rank updates it. All pointers lead into the engine's memory.
template <std::floating_point A>
struct FactoredPart {
    rules::FactoredNumbers<A> numbers;
    const AnyRuleUpdate* update = nullptr;
    TensorPart part;
    IndexRange elements;        ///< of the part; what follows is from the first one on
    bool counts = false;        ///< whether this rank, of those that update the same elements, adds them
    bool keeps_master = false;  ///< `master` is not what the next gather sends
    ElementType updated = element_type_of<A>;
    ElementType gradients = element_type_of<A>;
    const void* master = nullptr;
    const std::uint16_t* rest = nullptr;  ///< the lower halves of masters that are split
    const void* gradient = nullptr;
    A* direction = nullptr;

    template <class Rule>
    constexpr const auto& update_of() const {
        return *reinterpret_cast<const typename Rule::template Update<A>*>(update->bytes);
    }
    constexpr std::size_t column_of(std::size_t row, std::size_t in_row) const {
        return row / numbers.extents.rows * numbers.extents.columns + in_row;
    }
    /// f(i, row, column) for those of elements `begin` to `end` of the part, in order.
    template <class F>
    constexpr void for_each(std::size_t begin, std::size_t end, const F& f) const {
        const std::size_t columns = numbers.extents.columns;
        part.for_each_run(begin, end, [&](std::size_t i, std::size_t whole, std::size_t run) {
            std::size_t row = whole / columns;
            std::size_t in_row = whole % columns;
            while (run > 0) {
                const std::size_t left = columns - in_row < run ? columns - in_row : run;
                const std::size_t column = column_of(row, in_row);
                for (std::size_t e = 0; e < left; ++e) { f(i + e, row, column + e); }
                i += left;
                run -= left;
                in_row = 0;
                ++row;
            }
        });
    }
};

/// The same on a device, whose kernels know the element types.
template <class Types>
struct TypedPart : FactoredPart<typename Types::A> {
    using A = typename Types::A;
    using Updated = typename Types::Master;

    constexpr rules::FactoredElement<A> element(std::size_t i, std::size_t row, std::size_t column) const {
        const std::size_t at = i - this->elements.begin;
        const Updated parameter = static_cast<const Updated*>(this->master)[at];
        const A sum = of(static_cast<const typename Types::Reduction*>(this->gradient)[at]);
        if constexpr (sizeof(Updated) == sizeof(std::uint16_t) && std::same_as<A, float>) {
            if (this->rest != nullptr) {
                return {SplitFloat::joined(std::bit_cast<std::uint16_t>(parameter), this->rest[at]), sum, row,
                        column};
            }
        }
        return {of(parameter), sum, row, column};
    }

  private:
    template <class T>
    static constexpr A of(T element) {
        return static_cast<A>(static_cast<Arithmetic<T>>(element));
    }
};
/// The same on the host, which converts some elements at a time.
template <std::floating_point A>
struct HostPart : FactoredPart<A> {
    const HostConversions* conversions = nullptr;

    /// f(element, the place of its direction) for all, in order.
    template <class F>
    void for_each_element(const F& f) const {
        constexpr std::size_t most = 512;
        alignas(64) A masters[most];
        alignas(64) A sums[most];
        const auto load = this->keeps_master ? conversions->masters.load : conversions->stored.load;
        for (std::size_t first = 0; first < this->elements.size(); first += most) {
            const std::size_t left = this->elements.size() - first;
            const std::size_t count = left < most ? left : most;
            const void* parameter = behind(this->master, first * size_of(this->updated));
            const void* sum = behind(this->gradient, first * size_of(this->gradients));
            if (this->rest != nullptr) {
                conversions->join(parameter, this->rest + first, masters, count);
                parameter = masters;
            } else if (load != nullptr) {
                load(parameter, masters, count);
                parameter = masters;
            }
            if (conversions->load_sums != nullptr) {
                conversions->load_sums(sum, sums, count);
                sum = sums;
            }
            const std::size_t begin = this->elements.begin + first;
            this->for_each(begin, begin + count, [&](std::size_t i, std::size_t row, std::size_t column) {
                f(rules::FactoredElement<A>{static_cast<const A*>(parameter)[i - begin],
                                            static_cast<const A*>(sum)[i - begin], row, column},
                  this->direction + (i - this->elements.begin));
            });
        }
    }
};

/// Adds a pass's sums of one parameter over the elements of this rank, a number by index.
template <class Part, class Rule, std::size_t Pass>
struct AddTerms {
    Part of;

    constexpr void operator()(std::uint64_t number) const {
        add(number, std::make_index_sequence<Rule::sums.size()>{});
    }

  private:
    template <std::size_t... Sum>
    constexpr void add(std::uint64_t number, std::index_sequence<Sum...> /*all*/) const {
        static_cast<void>((add_one<Sum>(number) || ...));
    }
    /// Whether `number`, which is counted down to those of further sums, was one of this sum.
    template <std::size_t Sum>
    constexpr bool add_one(std::uint64_t& number) const {
        if constexpr (Rule::sums[Sum].pass != Pass) {
            return false;
        } else {
            const rules::FactoredExtents& extents = of.numbers.extents;
            constexpr rules::Over over = Rule::sums[Sum].over;
            const std::size_t count = rules::numbers_over(over, extents);
            if (number >= count) {
                number -= count;
                return false;
            }
            double sum = 0;
            const auto take = [&](std::size_t i, std::size_t row, std::size_t column) {
                if (i < of.elements.begin || i >= of.elements.end) { return; }
                sum += of.template update_of<Rule>().template term<Sum>(of.element(i, row, column), of.numbers);
            };
            if (!of.counts) {
            } else if constexpr (over == rules::Over::rows) {
                const std::size_t begin = number * extents.columns;
                of.part.for_each_run_within(begin, begin + extents.columns,
                                            [&](std::size_t i, std::size_t whole, std::size_t run) {
                                                const std::size_t column = of.column_of(number, whole - begin);
                                                for (std::size_t e = 0; e < run; ++e) {
                                                    take(i + e, number, column + e);
                                                }
                                            });
            } else {
                const std::size_t matrix = number / extents.columns;
                for (std::size_t r = 0; r < extents.rows; ++r) {
                    const std::size_t row = matrix * extents.rows + r;
                    take(of.part.index_of(row * extents.columns + number % extents.columns), row, number);
                }
            }
            of.numbers.sums[Sum][number] = sum;
            return true;
        }
    }
};

/// Adds the same of all numbers on the host, in the same order.
template <class Rule, std::size_t Pass, std::floating_point A>
void add_terms_on_host(const HostPart<A>& of) {
    const auto for_each_sum = [](const auto& f) __attribute__((always_inline)) {
        [&]<std::size_t... Sum>(std::index_sequence<Sum...>) __attribute__((always_inline)) {
            (f(std::integral_constant<std::size_t, Sum>{}), ...);
        }
        (std::make_index_sequence<Rule::sums.size()>{});
    };
    for_each_sum([&](auto sum) {
        if (Rule::sums[sum].pass != Pass) { return; }
        const std::size_t count = rules::numbers_over(Rule::sums[sum].over, of.numbers.extents);
        std::fill_n(of.numbers.sums[sum], count, 0.0);
    });
    if (!of.counts) { return; }
    of.for_each_element([&](const rules::FactoredElement<A>& element, A* /*direction*/) {
        for_each_sum([&](auto sum) __attribute__((always_inline)) {
            if constexpr (Rule::sums[sum].pass == Pass) {
                constexpr bool rows = Rule::sums[sum].over == rules::Over::rows;
                if (!rows && of.numbers.extents.is_vector) { return; }
                of.numbers.sums[sum][rows ? element.row : element.column] +=
                    of.template update_of<Rule>().template term<sum>(element, of.numbers);
            }
        });
    });
}

/// What a rule does of one parameter behind a pass's sums, unless the step is skipped.
template <class Rule, std::floating_point A, std::size_t Pass>
struct Settle {
    FactoredPart<A> of;
    const std::uint32_t* skip;

    constexpr void operator()() const {
        if (*skip == 0) { of.template update_of<Rule>().template settle<Pass>(of.numbers); }
    }
};

/// Writes what takes the gradient's place, of an element by index.
template <class Part, class Rule>
struct WriteDirections {
    Part of;

    constexpr void operator()(std::uint64_t at) const {
        const std::size_t i = of.elements.begin + at;
        const std::size_t whole = of.part.whole_index(i);
        const std::size_t row = whole / of.numbers.extents.columns;
        const std::size_t column = of.column_of(row, whole % of.numbers.extents.columns);
        of.direction[at] = of.template update_of<Rule>().direction(of.element(i, row, column), of.numbers);
    }
};
/// The passes of a FactoredRule, as a rule whose updates they are.
template <class Rule>
struct PassesOf {
    template <class A>
    using Update = typename Rule::template Update<A>;
};
/// A pass over a parameter on a device; behind the last one, its directions.
template <std::floating_point A>
struct FactoredPass {
    FactoredPart<A> of;
    std::size_t pass;
};
/// f(std::integral_constant) of a pass, if it is one of the rule's.
template <class Rule, class F>
void with_pass(std::size_t pass, const F& f) {
    const auto call_if = [&]<std::size_t Pass>(std::integral_constant<std::size_t, Pass> number) {
        if (pass == Pass) { f(number); }
    };
    [&]<std::size_t... Pass>(std::index_sequence<Pass...>) {
        (call_if(std::integral_constant<std::size_t, Pass>{}), ...);
    }
    (std::make_index_sequence<passes_of<Rule>>{});
}

}  // namespace shardkit::detail

namespace shardkit::engine {

/// Passes over parameters with these element types, an UpdateTypes.
template <class Rule, class Types>
struct RuleUpdates<shardkit::detail::PassesOf<Rule>, Types> {
    shardkit::detail::DeviceUpdates given;

    template <class Kernels, class Stream>
    void on(const Stream& stream) const {
        namespace of = shardkit::detail;
        using Part = of::TypedPart<Types>;
        const auto& due = *static_cast<const of::FactoredPass<typename Types::A>*>(given.pass);
        const Part part{due.of};
        if (due.pass == of::passes_of<Rule>) {
            return Kernels::for_each_index(stream, part.elements.size(), of::WriteDirections<Part, Rule>{part});
        }
        of::with_pass<Rule>(due.pass, [&]<std::size_t Pass>(std::integral_constant<std::size_t, Pass>) {
            Kernels::for_each_index(stream, of::sums_in<Rule>(Pass, part.numbers.extents),
                                    of::AddTerms<Part, Rule, Pass>{part});
        });
    }
};

}  // namespace shardkit::engine
