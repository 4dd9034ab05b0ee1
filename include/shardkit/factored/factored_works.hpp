// SPDX-License-Identifier: Apache-2.0
#pragma once

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
#include <shardkit/param/tensor_part.hpp>

// What a FactoredRule's passes run: by index on a device, whole on the host. Both add in the same order.

namespace shardkit::detail {

/// One parameter in a step, as far as this rank updates it. All pointers lead into the engine's memory.
template <class Rule, std::floating_point A, class Updated, class Reduction>
struct FactoredPart {
    using Update = typename Rule::template Update<A>;

    rules::FactoredNumbers<Rule, A> numbers;
    const Update* update = nullptr;
    TensorPart part;
    IndexRange elements;  ///< of the part; what follows is from the first one on
    const Updated* master = nullptr;
    const std::uint16_t* rest = nullptr;  ///< the lower halves of masters that are split
    const Reduction* gradient = nullptr;
    A* direction = nullptr;

    constexpr rules::FactoredElement<A> element(std::size_t i, std::size_t row, std::size_t column) const {
        const std::size_t at = i - elements.begin;
        A parameter;
        if constexpr (sizeof(Updated) == sizeof(std::uint16_t) && std::same_as<A, float>) {
            parameter = rest != nullptr ? SplitFloat::joined(std::bit_cast<std::uint16_t>(master[at]), rest[at])
                                        : static_cast<A>(master[at]);
        } else {
            parameter = static_cast<A>(master[at]);
        }
        return {parameter, static_cast<A>(gradient[at]), row, column};
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

/// Adds a pass's sums of one parameter over the elements of this rank: a number by index, or all of them.
template <class Part, class Rule, std::size_t Pass>
struct AddTerms {
    Part of;
    bool counts;  ///< whether this rank, of those that update the same elements, adds them

    constexpr void operator()(std::uint64_t number) const { add(number, All{}); }
    constexpr void operator()() const {
        const std::size_t total = sums_in<Rule>(Pass, of.numbers.extents);
        double* const first = of.numbers.sums[first_sum];
        for (std::size_t i = 0; i < total; ++i) { first[i] = 0; }
        if (!counts) { return; }
        of.for_each(of.elements.begin, of.elements.end, [this](std::size_t i, std::size_t row, std::size_t column) {
            add_all(of.element(i, row, column), All{});
        });
    }

  private:
    using All = std::make_index_sequence<Rule::sums.size()>;
    static constexpr std::size_t first_sum = [] {
        std::size_t first = 0;
        while (Rule::sums[first].pass != Pass) { ++first; }
        return first;
    }();

    template <class Element, std::size_t... Sum>
    [[gnu::always_inline]] constexpr void add_all(const Element& element, std::index_sequence<Sum...> /*all*/) const {
        (add_to<Sum>(element), ...);
    }
    template <std::size_t Sum, class Element>
    [[gnu::always_inline]] constexpr void add_to(const Element& element) const {
        if constexpr (Rule::sums[Sum].pass == Pass) {
            constexpr bool rows = Rule::sums[Sum].over == rules::Over::rows;
            if (!rows && of.numbers.extents.is_vector) { return; }
            of.numbers.sums[Sum][rows ? element.row : element.column] +=
                of.update->template term<Sum>(element, of.numbers);
        }
    }
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
                sum += of.update->template term<Sum>(of.element(i, row, column), of.numbers);
            };
            if (!counts) {
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

/// What a rule does of one parameter behind a pass's sums, unless the step is skipped.
template <class Part, std::size_t Pass>
struct Settle {
    decltype(Part::numbers) numbers;
    const typename Part::Update* update;
    const std::uint32_t* skip;

    constexpr void operator()() const {
        if (*skip == 0) { update->template settle<Pass>(numbers); }
    }
};

/// Writes what takes the gradient's place: of an element by index, or of all.
template <class Part>
struct WriteDirections {
    Part of;

    constexpr void operator()(std::uint64_t at) const {
        const std::size_t i = of.elements.begin + at;
        const std::size_t whole = of.part.whole_index(i);
        const std::size_t row = whole / of.numbers.extents.columns;
        write(i, row, of.column_of(row, whole % of.numbers.extents.columns));
    }
    constexpr void operator()() const {
        of.for_each(of.elements.begin, of.elements.end,
                    [this](std::size_t i, std::size_t row, std::size_t column) { write(i, row, column); });
    }

  private:
    [[gnu::always_inline]] constexpr void write(std::size_t i, std::size_t row, std::size_t column) const {
        of.direction[i - of.elements.begin] = of.update->direction(of.element(i, row, column), of.numbers);
    }
};

}  // namespace shardkit::detail
