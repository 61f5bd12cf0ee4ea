#include "evaluator/kernels/window_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <vector>

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "evaluator/kernels/decode_attention_block.h"
#include "evaluator/kernels/window_attention_block.h"
#include "evaluator/kernels/window_attention_cuda.h"
#endif

namespace evalcar::kernels {

Windows windows_at(std::span<const std::int64_t> begins, at::Device device) {
  Windows windows;
  for (std::size_t i = 1; i < begins.size(); ++i)
    windows.most = std::max(windows.most, begins[i] - begins[i - 1]);
  const std::vector<std::int32_t> narrow(begins.begin(), begins.end());
  windows.begins = at::tensor(at::ArrayRef<std::int32_t>(narrow), at::kInt).to(device);
  return windows;
}

#ifdef EVALCAR_CUDA

bool has_window_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const Windows& windows) {
  const std::int64_t dim = q.size(2);
  const auto is_readable = [&](const at::Tensor& x) {
    return x.device() == q.device() && x.scalar_type() == at::kBFloat16 && x.sizes() == q.sizes() &&
           x.stride(2) == 1 && x.stride(1) == dim && x.stride(0) % 8 == 0 &&
           is_at_boundary(x.const_data_ptr());
  };
  return q.is_cuda() && (dim == 64 || dim == 80) && windows.most >= 1 &&
         windows.most <= kMostWindow && q.size(0) <= INT32_MAX && is_readable(q) &&
         is_readable(k) && is_readable(v) &&
         at::cuda::getDeviceProperties(q.get_device())->major >= 8;
}

void window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const Windows& windows, const at::Tensor& out) {
  TORCH_CHECK(has_window_kernel(q, k, v, windows) && out.is_contiguous() &&
                  out.scalar_type() == at::kBFloat16 && out.device() == q.device() &&
                  out.numel() == q.numel(),
              "window_attention: rows do not belong together");
  const c10::cuda::CUDAGuard guard(q.device());  // a launch goes to the current device
  const WindowLaunch launch{.q = q.const_data_ptr(),
                            .k = k.const_data_ptr(),
                            .v = v.const_data_ptr(),
                            .q_stride = q.stride(0),
                            .k_stride = k.stride(0),
                            .v_stride = v.stride(0),
                            .begins = windows.begins.const_data_ptr<std::int32_t>(),
                            .windows = windows.begins.numel() - 1,
                            .heads = q.size(1),
                            .dim = q.size(2),
                            .scale = decode_scale(q.size(2)),
                            .out = out.mutable_data_ptr()};
  C10_CUDA_CHECK(launch_window_attention(launch, at::cuda::getCurrentCUDAStream(q.get_device())));
}

#else

bool has_window_kernel(const at::Tensor&, const at::Tensor&, const at::Tensor&, const Windows&) {
  return false;
}

void window_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const Windows&,
                      const at::Tensor&) {
  TORCH_CHECK(false, "window_attention: built without CUDA");
}

#endif

void window_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                std::span<const std::int64_t> begins, const at::Tensor& out) {
  for (std::size_t i = 1; i < begins.size(); ++i) {
    const std::int64_t first = begins[i - 1], rows = begins[i] - first;
    const auto part = [&](const at::Tensor& x) {  // (heads, rows, dim)
      return x.narrow(0, first, rows).transpose(0, 1).to(at::kFloat);
    };
    const at::Tensor scores =
        at::matmul(part(q), part(k).transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(2)));
    out.narrow(0, first, rows)
        .copy_(at::matmul(at::softmax(scores, -1), part(v)).transpose(0, 1).reshape({rows, -1}));
  }
}

}  // namespace evalcar::kernels
