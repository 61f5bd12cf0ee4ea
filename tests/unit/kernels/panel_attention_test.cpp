#include "evaluator/kernels/panel_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "evaluator/kernels/panel_unit.h"

using namespace evalcar::kernels;

namespace {

// Two query heads over one key head, as many queries at once as `at_once`, by the given kernels.
at::Tensor attended_by(const PanelKernels& kernels, const at::Tensor& q, const at::Tensor& k,
                       const at::Tensor& v, std::int64_t at_once,
                       const std::vector<SeenKeys>& seen) {
  const at::Tensor out = at::full(q.sizes(), -7.0);
  const HeadAttention heads{.q = q.const_data_ptr<float>(),
                            .q_row = q.stride(0),
                            .q_head = q.stride(1),
                            .rows = q.size(0),
                            .group = q.size(1),
                            .k = k.const_data_ptr<float>(),
                            .k_row = k.stride(0),
                            .v = v.const_data_ptr<float>(),
                            .v_row = v.stride(0),
                            .keys = k.size(0),
                            .dim = q.size(2),
                            .seen = seen.empty() ? nullptr : seen.data(),
                            .out = out.mutable_data_ptr<float>(),
                            .out_row = out.stride(0),
                            .out_head = out.stride(1)};
  PanelAttender attender(q.size(2), kernels);
  for (std::int64_t first = 0; first < heads.queries(); first += at_once)
    attender.attend(heads, first, std::min(at_once, heads.queries() - first));
  return out;
}

// The same by each kernel, of which all give the same bits.
at::Tensor attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    std::int64_t at_once, const std::vector<SeenKeys>& seen = {}) {
  const at::Tensor out = attended_by(panel_kernels().front(), q, k, v, at_once, seen);
  for (const PanelKernels& kernels : panel_kernels()) {
    CAPTURE(std::string(kernels.name));
    CHECK(at::equal(attended_by(kernels, q, k, v, at_once, seen), out));
  }
  return out;
}

}  // namespace

TEST_CASE("attention by panels is libtorch's, with the same bits however many queries go at once") {
  if (!has_panel_unit()) SKIP("this CPU has no AVX2");
  for (const std::int64_t dim : {8, 20, 64, 128, 300}) {
    const at::Tensor q = at::randn({45, 2, dim}) * 2.0, k = at::randn({333, dim}) * 2.0,
                     v = at::randn({333, dim});
    const auto wide = [](const at::Tensor& x) {
      return x.to(at::kDouble).unsqueeze(0).expand({2, -1, -1});
    };
    const at::Tensor expected =
        at::scaled_dot_product_attention(q.to(at::kDouble).transpose(0, 1), wide(k), wide(v))
            .transpose(0, 1);

    const at::Tensor all =
        attended(q, k, v, std::min<std::int64_t>(90, PanelAttender::queries_at_once(dim)));

    CAPTURE(dim);
    CHECK((all.to(at::kDouble) - expected).abs().max().item<double>() < 1e-5);
    CHECK(at::equal(attended(q, k, v, 7), all));
  }
}

TEST_CASE("a query of attention by panels sees its own keys, with the bits that it has alone") {
  if (!has_panel_unit()) SKIP("this CPU has no AVX2");
  const at::Tensor q = at::randn({150, 2, 32}) * 2.0, k = at::randn({400, 32}) * 2.0,
                   v = at::randn({400, 32});
  std::vector<SeenKeys> seen;  // branches of 50 behind what they share, and rows that see few of it
  for (std::int64_t row = 0; row < 150; ++row)
    seen.push_back({.shared_begin = row % 3 == 0 ? row : 0,
                    .shared_end = row % 4 == 0 ? 0 : 250,
                    .begin = 250 + row / 50 * 50,
                    .end = 251 + row});

  const at::Tensor all = attended(q, k, v, 288, seen);

  for (const std::int64_t row : {0, 1, 49, 50, 77, 149}) {
    const SeenKeys& own = seen[static_cast<std::size_t>(row)];
    std::vector<at::Tensor> keys{k.narrow(0, own.begin, own.end - own.begin)},
        values{v.narrow(0, own.begin, own.end - own.begin)};
    if (own.shared_begin < own.shared_end) {
      keys.push_back(k.narrow(0, own.shared_begin, own.shared_end - own.shared_begin));
      values.push_back(v.narrow(0, own.shared_begin, own.shared_end - own.shared_begin));
    }
    const at::Tensor one = q.narrow(0, row, 1);
    const at::Tensor expected = attended(one, at::cat(keys), at::cat(values), 2);
    CAPTURE(row);
    CHECK((all.narrow(0, row, 1) - expected).abs().max().item<double>() < 1e-5);
    CHECK(at::equal(attended(one, k, v, 2, {own}), all.narrow(0, row, 1)));
  }
}

TEST_CASE("a query of attention by panels sees its window, with the bits that it has alone") {
  if (!has_panel_unit()) SKIP("this CPU has no AVX2");
  const at::Tensor q = at::randn({384, 2, 32}) * 2.0, k = at::randn({384, 32}) * 2.0,
                   v = at::randn({384, 32});
  for (const std::int64_t window : {20, 64, 100}) {
    std::vector<SeenKeys> seen;
    for (std::int64_t row = 0; row < 384; ++row) {
      const std::int64_t begin = row / window * window;
      seen.push_back({.begin = begin, .end = std::min<std::int64_t>(384, begin + window)});
    }

    const at::Tensor all = attended(q, k, v, 768, seen);

    for (const std::int64_t at_once : {192, 32, 2}) {
      CAPTURE(window, at_once);
      CHECK(at::equal(attended(q, k, v, at_once, seen), all));
    }
    for (const std::int64_t row : {0, 63, 64, 127, 130, 200, 383}) {
      const SeenKeys& own = seen[static_cast<std::size_t>(row)];
      const at::Tensor expected =
          attended(q.narrow(0, row, 1), k.narrow(0, own.begin, own.end - own.begin),
                   v.narrow(0, own.begin, own.end - own.begin), 2);
      CAPTURE(window, row);
      CHECK((all.narrow(0, row, 1) - expected).abs().max().item<double>() < 1e-5);
    }
  }
}
