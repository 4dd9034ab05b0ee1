// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/param/parameter_record.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit::checkpoint {

/// How a file holds a parameter: the name and shape of its tensor, and the order of its elements. The parameter's
/// row-major elements are seen as an array of `extents`, whose dimensions the file stores in the order `order`.
///     {"w", {3, 4}}                           unchanged
///     {"w", {4, 3}, {3, 4}, {1, 0}}           a [3, 4] parameter, transposed
///     {"qkv", {8, 24}, {2, 3, 4, 8}, {3, 1, 0, 2}}
///         a [24, 8] parameter of 2 heads x (query, key, value) x 4, as Conv1D of GPT-2 stores it: [in, all queries,
///         all keys, all values]
/// A parameter may be stored as several tensors, whose elements follow each other in that order:
///     {"", {}, {}, {}, {{"q", {8, 8}}, {"k", {4, 8}}, {"v", {4, 8}}}}
///         a [16, 8] parameter whose first 8 rows are "q"; see stored_rows
/// Several parameters may be stored as one tensor, in which each has the elements from `begin` on:
///     {"gate_up", {8, 4}, {}, {}, {}, 16}
///         a [4, 4] parameter that is the last 4 rows of "gate_up"; see stored_within
struct StoredAs {
    /// One of several tensors of a parameter.
    struct Part {
        std::string name;
        std::vector<std::size_t> shape;
    };
    std::string name;
    std::vector<std::size_t> shape;      ///< extents of the tensor in the file; empty for a scalar
    std::vector<std::size_t> extents{};  ///< empty: the elements keep their order
    std::vector<std::size_t> order{};    ///< dimension order[k] of `extents` is the file's k-th
    std::vector<Part> parts{};           ///< replaces `name` and `shape` where there are several tensors
    std::optional<std::size_t> begin{};  ///< first element in the tensor, where it holds other parameters too
    bool absent = false;                 ///< not in these files, and nothing else is set; see not_stored
    std::size_t padding_rows = 0;        ///< last rows of the parameter that are zero and in no file
};

/// Returns how files hold the parameters of the groups at `path`. It must return the same on every rank.
using TensorNames = std::function<StoredAs(std::string_view path, const ParameterRecord& parameter)>;

/// Stores a parameter unchanged.
inline StoredAs stored(std::string name, const TensorShape& shape) {
    return {std::move(name), {shape.extents.begin(), shape.extents.begin() + shape.rank}, {}, {}, {}, {}};
}
/// Stores a matrix [rows, columns] as [columns, rows].
/// @throws std::invalid_argument for a tensor that is no matrix
inline StoredAs stored_transposed(std::string name, const TensorShape& shape,
                                  SourceLocation where = SourceLocation::current()) {
    if (shape.rank != 2) {
        throw_invalid_argument(where, "stored_transposed: '", name, "' has shape ", shape.describe(),
                               ", expected a matrix");
    }
    return {
        std::move(name), {shape.extents[1], shape.extents[0]}, {shape.extents[0], shape.extents[1]}, {1, 0}, {}, {}};
}
/// Stores a parameter as several tensors, each with that many of its rows: for example query, key and value
/// projections.
///     stored_rows({{"q_proj.weight", 4096}, {"k_proj.weight", 1024}, {"v_proj.weight", 1024}}, parameter.shape)
/// @throws std::invalid_argument for a scalar. A wrong sum of rows is found where the names are used
inline StoredAs stored_rows(const std::vector<std::pair<std::string, std::size_t>>& tensors, const TensorShape& shape,
                            SourceLocation where = SourceLocation::current()) {
    if (shape.rank == 0) { throw_invalid_argument(where, "stored_rows: a scalar has no rows"); }
    StoredAs made;
    for (const auto& [name, rows] : tensors) {
        made.parts.push_back({name, {shape.extents.begin(), shape.extents.begin() + shape.rank}});
        made.parts.back().shape.front() = rows;
    }
    return made;
}
/// Stores a stack as a tensor for each of its parts, without the first dimension: each expert of an ep::Split
/// parameter, as files of Hugging Face have them. `name_of(number)` is the name of one.
///     stored_each([](std::size_t e) { return concat("experts.", e, ".w1.weight"); }, parameter.shape)
/// @throws std::invalid_argument for a scalar
template <class NameOf>
StoredAs stored_each(const NameOf& name_of, const TensorShape& shape,
                     SourceLocation where = SourceLocation::current()) {
    if (shape.rank == 0) { throw_invalid_argument(where, "stored_each: a scalar is no stack"); }
    StoredAs made;
    for (std::size_t number = 0; number < shape.extents[0]; ++number) {
        made.parts.push_back(
            {std::string(name_of(number)), {shape.extents.begin() + 1, shape.extents.begin() + shape.rank}});
    }
    return made;
}
/// Stores a parameter as the rows from `first` on of a tensor with `rows` rows; other parameters, of any group, must
/// fill the other rows.
///     stored_within("gate_up_proj.weight", 2 * 11008, 11008, parameter.shape)
/// @throws std::invalid_argument for a scalar. Rows that do not fit are found where the names are used
inline StoredAs stored_within(std::string name, std::size_t rows, std::size_t first, const TensorShape& shape,
                              SourceLocation where = SourceLocation::current()) {
    if (shape.rank == 0) { throw_invalid_argument(where, "stored_within: a scalar has no rows"); }
    StoredAs made = stored(std::move(name), shape);
    made.shape.front() = rows;
    made.begin = first * (shape.numel() / shape.extents[0]);
    return made;
}
/// Stores a parameter without its last rows, which are padding: a vocabulary that tp divides has some. A save refuses
/// any that are not zero; a load makes them zero, and their states.
///     stored_without_padding("wte.weight", parameter.shape, 50304 - 50257)
/// @throws std::invalid_argument for a tensor with no more rows
inline StoredAs stored_without_padding(std::string name, const TensorShape& shape, std::size_t padding_rows,
                                       SourceLocation where = SourceLocation::current()) {
    if (shape.rank == 0 || padding_rows >= shape.extents[0]) {
        throw_invalid_argument(where, "stored_without_padding: '", name, "' of shape ", shape.describe(), " with ",
                               padding_rows, " rows of padding, expected fewer than it has");
    }
    StoredAs made = stored(std::move(name), shape);
    made.shape.front() -= padding_rows;
    made.padding_rows = padding_rows;
    return made;
}
/// Stores no tensor in these files: a save leaves the parameter out with its states, and a load leaves it unchanged.
/// So adapters can have a file of their own, and what they adapt another.
inline StoredAs not_stored() {
    StoredAs made;
    made.absent = true;
    return made;
}
/// Stores a parameter unchanged as "path.parameter". This is the default.
inline StoredAs stored_by_path(std::string_view path, const ParameterRecord& parameter) {
    return stored(detail::concat(path, ".", parameter.name), parameter.shape);
}

}  // namespace shardkit::checkpoint

namespace shardkit::detail {

struct StoredTensor;

/// Maps the row-major elements of a parameter to their places in its file, and back. For a parameter stored as
/// several tensors, it maps those of one tensor.
class StoredOrder {
  public:
    /// Returns the tensors that hold a parameter, in order.
    /// @throws std::invalid_argument when the description does not fit the parameter
    static List<StoredTensor> of(const checkpoint::StoredAs& stored, std::string_view path,
                                 const ParameterRecord& parameter, SourceLocation where);
    /// Returns the order for a tensor that has fewer rows than this one; none if the shape is not such a tensor's.
    std::optional<StoredOrder> of_fewer_rows(const TensorShape& shape) const {
        TensorShape longer = shape;
        if (longer.rank == 0 || longer.rank != shape_.rank || shape.extents[0] > shape_.extents[0]) {
            return std::nullopt;
        }
        longer.extents[0] = shape_.extents[0];
        if (!plain_ || begin_ || !(longer == shape_)) { return std::nullopt; }
        StoredOrder fewer = *this;
        fewer.shape_ = shape;
        fewer.numel_ = shape.numel();
        fewer.plain_ = false;
        return fewer;
    }

    /// Returns the shape of the tensor in the file.
    const TensorShape& shape() const noexcept { return shape_; }
    /// Return how many of the tensor's elements are the parameter's, and the first one: all, unless it `shares`.
    std::size_t numel() const noexcept { return numel_; }
    std::size_t begin() const noexcept { return begin_.value_or(0); }
    /// Returns whether the tensor also has elements of other parameters.
    bool shares() const noexcept { return begin_.has_value(); }
    /// Returns a hash that is equal for equal orders of elements.
    std::uint64_t hash() const noexcept {
        Fnv fnv;
        fnv.add(first_);
        fnv.add(begin());
        for (std::size_t d = 0; d < rank_; ++d) {
            fnv.add(extents_[d]);
            fnv.add(strides_[d]);
        }
        return fnv.hash;
    }
    /// Returns whether the tensor holds the whole parameter, with its elements in their own order.
    bool plain() const noexcept { return plain_; }
    /// Returns whether the parameter's elements behind those of the tensor are padding.
    bool padded() const noexcept { return padded_; }

    /// Calls f(place in the file, element of the parameter) for places [first, first + count) of the file, in order.
    template <class F>
    void for_each(std::size_t first, std::size_t count, F&& f) const {
        for_each_run(first, count, [&](std::size_t place, std::size_t element, std::size_t run) {
            for (const std::size_t end = place + run; place < end; ++place, element += stride()) {
                f(place, element);
            }
        });
    }
    /// Calls f(place, element, run) for runs of adjacent places, whose elements are a stride apart.
    template <class F>
    void for_each_run(std::size_t first, std::size_t count, F&& f) const {
        std::size_t place = first_ + first;
        const std::size_t end = place + count;
        while (place < end) {
            std::size_t rest = place / extents_[0];
            std::size_t element = 0;
            for (std::size_t d = 1; d < rank_; ++d) {
                element += rest % extents_[d] * strides_[d];
                rest /= extents_[d];
            }
            const std::size_t at = place % extents_[0];
            const std::size_t run = std::min(extents_[0] - at, end - place);
            f(place - first_, element + at * stride(), run);
            place += run;
        }
    }
    std::size_t stride() const noexcept { return strides_[0]; }

  private:
    static constexpr std::size_t most = TensorShape::max_rank;

    /// Makes the order over all tensors of a parameter together. refuse(what) must throw.
    template <class Refuse>
    StoredOrder(const checkpoint::StoredAs& stored, std::size_t numel, const Refuse& refuse) {
        const std::size_t rank = stored.extents.size();
        if (rank != stored.order.size() || rank > most) {
            refuse("expected extents and an order of as many, at most 8");
        }
        TensorShape seen_as;
        seen_as.rank = rank;
        std::copy_n(stored.extents.begin(), rank, seen_as.extents.begin());
        if (rank > 0 && (!seen_as.countable() || seen_as.numel() != numel)) {
            refuse(concat("seen as ", seen_as.describe(), ": expected extents of as many elements"));
        }
        std::size_t product = 1;
        std::array<std::size_t, most> strides{};  // in the parameter, by dimension of `extents`
        for (std::size_t d = rank; d-- > 0;) {
            strides[d] = product;
            product *= stored.extents[d];
        }
        std::array<bool, most> seen{};
        for (const std::size_t d : stored.order) {
            if (d >= rank || seen[d]) { refuse("expected an order that names each dimension once"); }
            seen[d] = true;
        }
        // The file's dimensions from the last one on. Those that are contiguous in both are merged.
        for (std::size_t k = rank; k-- > 0;) {
            const std::size_t d = stored.order[k];
            if (stored.extents[d] == 1) { continue; }
            if (rank_ > 0 && strides[d] == strides_[rank_ - 1] * extents_[rank_ - 1]) {
                extents_[rank_ - 1] *= stored.extents[d];
                continue;
            }
            extents_[rank_] = stored.extents[d];
            strides_[rank_++] = strides[d];
        }
        if (rank_ == 0) {
            extents_[0] = numel;
            strides_[0] = 1;
            rank_ = 1;
        }
        plain_ = rank_ == 1;
    }

    TensorShape shape_;
    std::size_t numel_ = 0;
    std::optional<std::size_t> begin_;
    std::size_t first_ = 0;  // place of its first element, counted over all tensors of the parameter
    std::array<std::size_t, most> extents_{};  // in the file, innermost first
    std::array<std::size_t, most> strides_{};  // in the parameter, for each of them
    std::size_t rank_ = 0;
    bool plain_ = true;
    bool padded_ = false;
};

/// A tensor that holds a parameter, or a part of one.
struct StoredTensor {
    std::string name;
    StoredOrder order;
};

inline List<StoredTensor> StoredOrder::of(const checkpoint::StoredAs& stored, std::string_view path,
                                          const ParameterRecord& parameter, SourceLocation where) {
    const auto refuse = [&](std::string_view name, const std::string& what) {
        throw_invalid_argument(where, "'", path, "' parameter '", parameter.name, "' of shape ",
                               parameter.shape.describe(), " as '", name, "': ", what);
    };
    if (stored.absent) {
        if (!stored.name.empty() || !stored.parts.empty()) {
            refuse(stored.name, "absent, expected a tensor or nothing else");
        }
        return {};
    }
    if (stored.padding_rows > 0) {
        checkpoint::StoredAs whole = stored;
        whole.padding_rows = 0;
        if (!whole.shape.empty()) { whole.shape.front() += stored.padding_rows; }
        List<StoredTensor> tensors = of(whole, path, parameter, where);
        StoredOrder& order = tensors.front().order;
        TensorShape fewer = order.shape_;
        if (stored.shape.empty() || stored.shape.front() == 0 || !(fewer == parameter.shape) || !order.plain_ ||
            order.begin_) {
            refuse(stored.name, concat(stored.padding_rows,
                                       " rows of padding, expected a tensor of its own with the other rows, in the "
                                       "parameter's order"));
        }
        fewer.extents[0] = stored.shape.front();
        order = *order.of_fewer_rows(fewer);
        order.padded_ = true;
        return tensors;
    }
    const std::size_t numel = parameter.shape.numel();
    std::vector<checkpoint::StoredAs::Part> parts = stored.parts;
    if (parts.empty()) {
        parts.push_back({stored.name, stored.shape});
    } else if (!stored.name.empty() || !stored.shape.empty() || stored.begin) {
        refuse(stored.name, "expected either a tensor or parts");
    }
    const StoredOrder whole(stored, numel, [&](const std::string& what) { refuse(parts.front().name, what); });
    List<StoredTensor> tensors;
    std::size_t next = 0;
    for (checkpoint::StoredAs::Part& part : parts) {
        const auto refuse_part = [&](const std::string& what) {
            std::string shape;
            for (const std::size_t extent : part.shape) { shape += concat(shape.empty() ? "" : ", ", extent); }
            refuse(part.name, concat("shape [", shape, "]: ", what));
        };
        StoredOrder& order = tensors.push_back({{}, whole}).order;
        order.shape_.rank = std::min(part.shape.size(), most);
        std::copy_n(part.shape.begin(), order.shape_.rank, order.shape_.extents.begin());
        if (part.name.empty() || part.name == "__metadata__") { refuse_part("expected a name"); }
        const bool counted = part.shape.size() <= most && order.shape_.countable() && order.shape_.numel() > 0;
        if (stored.begin) {
            if (!counted || *stored.begin > order.shape_.numel() || numel > order.shape_.numel() - *stored.begin) {
                refuse_part(concat("expected at most 8 extents, and as many elements from ", *stored.begin, " on"));
            }
            order.begin_ = stored.begin;
            order.numel_ = numel;
        } else if (!counted || order.shape_.numel() > numel - next) {
            refuse_part("expected at most 8 extents of as many elements");
        } else {
            order.numel_ = order.shape_.numel();
        }
        order.first_ = next;
        next += order.numel_;
        tensors.back().name = std::move(part.name);
    }
    if (next != numel) {
        refuse(tensors.back().name, concat("expected ", numel, " elements in its tensors, they have ", next));
    }
    if (tensors.size() > 1) {
        for (auto& [name, order] : tensors) { order.plain_ = false; }
    }
    return tensors;
}

/// Returns the user's names for an alias; none where `names` only knows parameters.
inline std::vector<std::string> names_of_alias(const checkpoint::TensorNames& names, const std::string& path,
                                               const ParameterRecord& alias, SourceLocation where) {
    std::vector<std::string> all;
    try {
        for (auto& [name, order] : StoredOrder::of(names(path, alias), path, alias, where)) {
            all.push_back(std::move(name));
        }
    } catch (const std::exception&) { all.clear(); }
    return all;
}

}  // namespace shardkit::detail
